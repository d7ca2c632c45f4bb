#include "support/allocation_counter.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace gnomon::test {
namespace {

volatile std::size_t hundred = 100;  // keeps the compiler from leaving the allocations out

TEST(AllocationCounterTest, SeesEveryWayToAllocate) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep their own allocator";
#endif
  const AllocationCounter counter;
  EXPECT_EQ(counter.ours(), 0);
  const auto number = std::make_unique<int>(static_cast<int>(hundred));
  EXPECT_EQ(counter.ours(), 1);
  const std::string text(hundred, 'x');  // allocated inside libstdc++
  EXPECT_EQ(counter.ours(), 2);
  struct alignas(64) Line {
    char bytes[64];
  };
  const auto line = std::make_unique<Line>();
  EXPECT_EQ(counter.ours(), 3);
  void* volatile memory = std::aligned_alloc(64, 64 * hundred);
  EXPECT_EQ(counter.ours(), 4);
  std::free(memory);
  EXPECT_EQ(counter.libraries(), 0);
}

}  // namespace
}  // namespace gnomon::test
