// What classify_mask must say of a mask, on the device and on the emulator.
#pragma once

#include <gtest/gtest.h>

#include "cuda/kernels/params.cuh"
#include "support/tensors.hpp"

namespace gnomon::test {

// `keys(b)` and `word(b, i)`: what was written for sequence b.
template <typename Keys, typename Word>
void expect_classified(const TestMask& mask, std::int64_t batch, std::int64_t seq, Keys&& keys, Word&& word,
                       std::uint32_t kind) {
  bool right = true, left = true, whole = true;
  for (std::int64_t b = 0; b < batch; ++b) {
    int first = 0, end = 0, count = 0;
    for (std::int64_t s = 0; s < seq; ++s) {
      ASSERT_EQ(word(b, s / 32) >> s % 32 & 1, mask.valid(b, s) ? 1u : 0u) << b << " " << s;
      if (!mask.valid(b, s)) continue;
      if (count++ == 0) first = static_cast<int>(s);
      end = static_cast<int>(s) + 1;
    }
    const kernels::SequenceKeys got = keys(b);
    ASSERT_EQ(got.first, first) << b;
    ASSERT_EQ(got.end, end) << b;
    ASSERT_EQ(got.count, count) << b;
    whole &= count == seq;
    right &= first == 0 && count == end;
    left &= count == 0 || (end == seq && count == end - first);
  }
  ASSERT_EQ(kind, whole   ? kernels::kAllValid
                  : right ? kernels::kRightPadded
                  : left  ? kernels::kLeftPadded
                          : kernels::kAnyMask);
}

}  // namespace gnomon::test
