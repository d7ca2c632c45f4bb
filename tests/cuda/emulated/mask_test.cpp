// classify_mask on the emulator: every kind of mask, a warp and a block to a sequence, again and again with one state.

#include <fmt/format.h>

#include "cuda/emulated/classified_mask.hpp"
#include "cuda/mask_cases.hpp"

namespace gnomon::test {
namespace {

void expect_right(std::int64_t batch, std::int64_t seq, Rng& rng) {
  ClassifiedMask classified(batch, seq);
  for (const MaskKind kind : kMaskKinds) {
    SCOPED_TRACE(fmt::format("B={} S={} {}", batch, seq, name_of(kind)));
    const TestMask mask(batch, seq, kind, rng, rng() % 2);
    classified.classify(mask, rng);
    expect_classified(
        mask, batch, seq, [&](std::int64_t b) { return classified.keys[static_cast<std::size_t>(b)]; },
        [&](std::int64_t b, std::int64_t word) {
          return classified.bitmap[static_cast<std::size_t>(b * classified.words + word)];
        },
        classified.state[2]);
    EXPECT_EQ(classified.state[0], 0u);
    EXPECT_EQ(classified.state[1], 0u);
  }
}

TEST(EmulatedMask, SaysWhatTheMaskHolds) {
  Rng rng(test_seed());
  for (const auto& [batch, seq] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 10}, {17, 31}, {9, 32}, {5, 33}, {8, 100}}) {
    expect_right(batch, seq, rng);
  }
  expect_right(2, 300, rng);
  expect_right(3, 1500, rng);
}

}  // namespace
}  // namespace gnomon::test
