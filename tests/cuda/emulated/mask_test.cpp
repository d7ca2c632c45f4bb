// classify_mask on the emulator: every kind of mask, a warp and a block to a sequence, again and again with one state.
#include "emulated/mask.cuh"

#include <fmt/format.h>

#include "cuda/emulated/on_emulator.hpp"
#include "cuda/mask_cases.hpp"

namespace gnomon::test {
namespace {

template <int kThreads>
void expect_right(std::int64_t batch, std::int64_t seq, Rng& rng) {
  const std::int64_t words = (seq + 31) / 32, sequences_of_block = kernels::kMaskThreads / kThreads;
  std::vector<kernels::u32> state(3, 0);  // and the class
  for (const MaskKind kind : kMaskKinds) {
    SCOPED_TRACE(fmt::format("B={} S={} {}", batch, seq, name_of(kind)));
    const TestMask mask(batch, seq, kind, rng, rng() % 2);
    std::vector<kernels::SequenceKeys> keys(static_cast<std::size_t>(batch), {-1, -1, -1, -1});
    std::vector<kernels::u32> bitmap(static_cast<std::size_t>(batch * words), 0xa5a5a5a5u);
    const kernels::ClassifyMask p{.mask = {mask.view().data, seq, mask.view().strides[0], mask.view().strides[1]},
                                  .batch = batch,
                                  .keys = keys.data(),
                                  .bitmap = bitmap.data(),
                                  .words = words,
                                  .state = state.data(),
                                  .kind = state.data() + 2};
    emulator::emulate(
        &kernels::classify_mask<kThreads>,
        {.blocks = (batch + sequences_of_block - 1) / sequences_of_block, .threads = kernels::kMaskThreads}, rng(), p);
    expect_classified(
        mask, batch, seq, [&](std::int64_t b) { return keys[static_cast<std::size_t>(b)]; },
        [&](std::int64_t b, std::int64_t word) { return bitmap[static_cast<std::size_t>(b * words + word)]; },
        state[2]);
    EXPECT_EQ(state[0], 0u);
    EXPECT_EQ(state[1], 0u);
  }
}

TEST(EmulatedMask, SaysWhatTheMaskHolds) {
  Rng rng(test_seed());
  for (const auto& [batch, seq] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 10}, {17, 31}, {9, 32}, {5, 33}, {8, 100}}) {
    expect_right<32>(batch, seq, rng);
  }
  expect_right<256>(2, 300, rng);
  expect_right<256>(3, 1500, rng);
}

}  // namespace
}  // namespace gnomon::test
