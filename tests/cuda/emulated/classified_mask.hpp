// A mask as classify_mask describes it, run on the emulator.
#pragma once

#include <vector>

#include "cuda/emulated/on_emulator.hpp"
#include "emulated/mask.cuh"

namespace gnomon::test {

struct ClassifiedMask {
  ClassifiedMask(std::int64_t of_batch, std::int64_t of_seq)
      : batch(of_batch),
        seq(of_seq),
        words((of_seq + 31) / 32),
        keys(static_cast<std::size_t>(batch)),
        bitmap(static_cast<std::size_t>(batch * words)),
        state(3, 0) {}

  // A warp to a short sequence, a block to a long one.
  void classify(const TestMask& mask, Rng& rng) {
    keys.assign(keys.size(), {-1, -1, -1, -1});
    bitmap.assign(bitmap.size(), 0xa5a5a5a5u);
    const kernels::ClassifyMask p{.mask = {mask.view().data, seq, mask.view().strides[0], mask.view().strides[1]},
                                  .batch = batch,
                                  .keys = keys.data(),
                                  .bitmap = bitmap.data(),
                                  .words = words,
                                  .state = state.data(),
                                  .kind = state.data() + 2};
    const bool whole_block = seq > 256;
    const std::int64_t sequences = whole_block ? 1 : kernels::kMaskThreads / 32;
    emulator::emulate(whole_block ? &kernels::classify_mask<256> : &kernels::classify_mask<32>,
                      {.blocks = (batch + sequences - 1) / sequences, .threads = kernels::kMaskThreads}, rng(), p);
  }

  std::int64_t batch, seq, words;
  std::vector<kernels::SequenceKeys> keys;
  std::vector<kernels::u32> bitmap, state;  // the last of `state` is the class
};

}  // namespace gnomon::test
