#include "cpu/arena.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <new>
#include <optional>
#include <thread>
#include <vector>

// The sanitizers' allocators abort on a size that the system's refuses, unless told so.
// Visible, since the sanitizer's library looks them up in the program.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
const char* __asan_default_options() { return "allocator_may_return_null=1"; }
const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace gnomon::cpu {
namespace {

constexpr std::size_t kMiB = 1 << 20;

TEST(AlignedBuffer, StandsOnACacheLineAndHoldsWhatWasAsked) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{65}, 2 * kMiB, 2 * kMiB + 1}) {
    const AlignedBuffer buffer(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u) << bytes;
    EXPECT_GE(buffer.size(), bytes);
    EXPECT_LT(buffer.size(), bytes + 64);
    std::memset(buffer.data(), 1, buffer.size());
  }
  EXPECT_EQ(AlignedBuffer(0).data(), nullptr);
}

TEST(AlignedBuffer, TooMuchIsBadAlloc) { EXPECT_THROW(AlignedBuffer(std::size_t{1} << 62), std::bad_alloc); }

TEST(Arena, IsAsLargeAsItsLargestClaim) {
  Arena arena;
  EXPECT_EQ(arena.size(), 0u);
  const Arena::Claim small(arena, 1000);
  EXPECT_EQ(small.bytes(), 1000u);
  EXPECT_GE(arena.size(), 1000u);
  {
    const Arena::Claim large(arena, 8 * kMiB), medium(arena, 3 * kMiB);
    EXPECT_EQ(arena.size(), 8 * kMiB);
    const Arena::Use use(arena, large);
    std::memset(use.data(), 0, 8 * kMiB);
  }
  EXPECT_EQ(arena.size(), 8 * kMiB) << "memory stays until trim()";
}

TEST(Arena, TrimKeepsWhatALiveClaimNeeds) {
  Arena arena;
  std::optional<Arena::Claim> small(std::in_place, arena, kMiB);
  std::optional<Arena::Claim> large(std::in_place, arena, 16 * kMiB);
  std::optional<Arena::Claim> same(std::in_place, arena, 16 * kMiB);
  arena.trim();
  EXPECT_EQ(arena.size(), 16 * kMiB);
  large.reset();
  arena.trim();
  EXPECT_EQ(arena.size(), 16 * kMiB) << "another claim of that size lives";
  same.reset();
  arena.trim();
  EXPECT_LE(arena.size(), 3 * kMiB);
  EXPECT_GE(arena.size(), kMiB);
  small.reset();
  arena.trim();
  EXPECT_LE(arena.size(), 2 * kMiB) << "only a little slack without claims";
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need memory of their own
TEST(Arena, ATrimThatGetsNoMemoryLeavesItToTheNextPass) {
  Arena arena;  // of sizes that malloc always maps anew
  const Arena::Claim small(arena, 40 * kMiB);
  { const Arena::Claim large(arena, 128 * kMiB); }
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit nothing{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &nothing), 0);
  arena.trim();
  const std::size_t size = arena.size();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(size, 0u) << "the limit did not bind";
  const Arena::Use use(arena, small);
  std::memset(use.data(), 0, kMiB);
}
#endif

TEST(Arena, AClaimThatFailsLeavesTheOthersTheirMemory) {
  Arena arena;
  const Arena::Claim claim(arena, 4 * kMiB);
  EXPECT_THROW(Arena::Claim(arena, std::size_t{1} << 62), std::bad_alloc);
  const Arena::Use use(arena, claim);
  std::memset(use.data(), 0, 4 * kMiB);
}

TEST(Arena, PoisonIsNaNInEveryType) {
  Arena arena;
  arena.poison();  // of nothing
  const Arena::Claim claim(arena, 4096);
  arena.poison();
  const Arena::Use use(arena, claim);
  float as_float = 0;
  double as_double = 0;
  std::memcpy(&as_float, use.data() + 4092, sizeof as_float);
  std::memcpy(&as_double, use.data(), sizeof as_double);
  EXPECT_TRUE(std::isnan(as_float));
  EXPECT_TRUE(std::isnan(as_double));
}

TEST(Arena, IsUsedByOnePassAtATime) {
  Arena arena;
  const Arena::Claim claim(arena, 4096);
  std::atomic<int> inside{0}, together{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const Arena::Claim larger(arena, static_cast<std::size_t>(4096 + 4096 * t * i));
        const Arena::Use use(arena, larger);
        together += ++inside > 1;
        std::memset(use.data(), t, larger.bytes());
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, 0);
}

}  // namespace
}  // namespace gnomon::cpu
