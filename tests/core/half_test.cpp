#include "core/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

namespace gnomon {
namespace {

// The value of a 16-bit float by the format's definition.
double by_definition(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const double fraction = std::ldexp(bits & ((1 << fraction_bits) - 1), -fraction_bits);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

template <typename Widen, typename Narrow>
void check_all_bits(int exponent_bits, Widen widen, Narrow narrow) {
  for (int i = 0; i < 1 << 16; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double expected = by_definition(bits, exponent_bits, 15 - exponent_bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(widen(bits))) << bits;
      ASSERT_TRUE(std::isnan(widen(narrow(widen(bits))))) << bits;
      continue;
    }
    ASSERT_EQ(widen(bits), expected) << bits;
    ASSERT_EQ(narrow(widen(bits)), bits);
    if ((bits & 0x7fff) == 0 || !std::isfinite(expected)) continue;
    // Between this value and its neighbour nearer to zero: the tie goes to the even one, else the nearer wins.
    const auto nearer = static_cast<std::uint16_t>(bits - 1);
    const auto middle = static_cast<float>((expected + by_definition(nearer, exponent_bits, 15 - exponent_bits)) / 2);
    ASSERT_EQ(narrow(middle), bits % 2 == 0 ? bits : nearer) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, widen(bits))), bits);
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0f)), nearer);
  }
}

TEST(Half, EveryF16AndEveryTie) { check_all_bits(5, f16_to_float, float_to_f16); }
TEST(Half, EveryBf16AndEveryTie) { check_all_bits(8, bf16_to_float, float_to_bf16); }

TEST(Half, WhatIsTooLargeBecomesInfinite) {
  EXPECT_EQ(float_to_f16(65519.99f), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_f16(-1e30f), 0xfc00);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

}  // namespace
}  // namespace gnomon
