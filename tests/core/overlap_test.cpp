#include "core/overlap.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace gnomon {
namespace {

alignas(64) char memory[1 << 16];
constexpr std::int64_t kMiddle = 1 << 15;

// How many elements touch each byte, by walking all of them.
std::map<std::int64_t, int> bytes_of(const StridedBytes& box) {
  std::map<std::int64_t, int> touched;
  const std::int64_t base = static_cast<const char*>(box.data) - memory;
  for (std::int64_t i = 0; i < box.shape[0]; ++i) {
    for (std::int64_t j = 0; j < box.shape[1]; ++j) {
      for (std::int64_t k = 0; k < box.shape[2]; ++k) {
        const std::int64_t at = base + i * box.strides[0] + j * box.strides[1] + k * box.strides[2];
        for (std::int64_t byte = 0; byte < box.element; ++byte) ++touched[at + byte];
      }
    }
  }
  return touched;
}

TEST(Overlap, AgreesWithWalkingEveryByte) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto box = [&] {
    return StridedBytes{.data = memory + kMiddle + pick(-60, 60),
                        .element = std::int64_t{1} << pick(0, 2),
                        .shape = {pick(0, 4), pick(1, 4), pick(1, 4)},
                        .strides = {pick(-40, 40), pick(-20, 20), pick(-12, 12)}};
  };
  int meeting = 0, selfish = 0;
  for (int round = 0; round < 5000; ++round) {
    const StridedBytes a = box(), b = box();
    const auto in_a = bytes_of(a), in_b = bytes_of(b);
    bool meet = false, self = false;
    for (const auto& [byte, times] : in_a) meet |= in_b.contains(byte), self |= times > 1;
    const std::string shown = fmt::format("round {}", round);
    ASSERT_EQ(overlaps(a, b), meet) << shown;
    ASSERT_EQ(overlaps_itself(a), self) << shown;
    meeting += meet, selfish += self;
  }
  EXPECT_GT(meeting, 500);  // the test must see both answers
  EXPECT_LT(meeting, 4500);
  EXPECT_GT(selfish, 500);
  EXPECT_LT(selfish, 4500);
}

TEST(Overlap, LargeLayoutsAreDecidedWithoutWalking) {
  const StridedBytes left{.data = memory, .element = 4, .shape = {10000, 100, 128}, .strides = {100 * 1024, 1024, 4}};
  StridedBytes right = left;
  right.data = memory + 512;
  EXPECT_FALSE(overlaps(left, right));
  right.data = memory + 508;
  EXPECT_TRUE(overlaps(left, right));
  EXPECT_FALSE(overlaps_itself(left));
}

}  // namespace
}  // namespace gnomon
