// Rows of floats between guard zones, and comparisons with double-precision formulas.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "cpu/aligned_buffer.hpp"
#include "support/tensors.hpp"

namespace gnomon::test {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Begins on a cache line (or `shift` floats after one). Everything holds one NaN of its own at first.
class GuardedFloats {
 public:
  explicit GuardedFloats(std::int64_t floats, std::int64_t shift = 0)
      : floats_(floats), shift_(shift), buffer_(static_cast<std::size_t>(floats + shift + 2 * kGuard) * sizeof(float)) {
    std::fill_n(all(), floats_ + shift_ + 2 * kGuard, std::bit_cast<float>(kPattern));
  }
  float* data() const { return all() + kGuard + shift_; }
  std::int64_t size() const { return floats_; }
  float& operator[](std::int64_t i) const { return data()[i]; }
  bool written(std::int64_t i) const { return std::bit_cast<std::uint32_t>(data()[i]) != kPattern; }
  bool guards_intact() const {
    for (std::int64_t i = 0; i < kGuard; ++i) {
      if (written(-shift_ - 1 - i) || written(floats_ + i)) return false;
    }
    return true;
  }
  void fill_normal(Rng& rng, double scale = 1) const {
    std::normal_distribution<double> normal(0, scale);
    for (std::int64_t i = 0; i < floats_; ++i) data()[i] = static_cast<float>(normal(rng));
  }

 private:
  static constexpr std::int64_t kGuard = 64;
  static constexpr std::uint32_t kPattern = 0x7fc5a5a5u;
  float* all() const { return reinterpret_cast<float*>(buffer_.data()); }
  std::int64_t floats_, shift_;
  cpu::AlignedBuffer buffer_;
};

inline std::vector<float> normal_floats(std::int64_t n, Rng& rng, double scale = 1) {
  std::normal_distribution<double> normal(0, scale);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = static_cast<float>(normal(rng));
  return values;
}

// Every length up to two of the widest vectors and a bit, and some larger ones.
inline std::vector<std::int64_t> kernel_lengths() {
  std::vector<std::int64_t> lengths(70);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<std::int64_t>(i) + 1;
  lengths.insert(lengths.end(), {127, 128, 129, 384, 1000, 1023});
  return lengths;
}

// NaN agrees with NaN, an infinity with itself, a number with what is within `bound` of it.
inline bool near(float got, double want, double bound) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return static_cast<double>(got) == want;
  return std::fabs(static_cast<double>(got) - want) <= bound;
}

}  // namespace gnomon::test
