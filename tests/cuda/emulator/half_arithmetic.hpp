// Arithmetic of fp16 as the hardware does it: one rounding, to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/half.hpp"

namespace gnomon::emulator {

inline std::uint16_t double_to_f16(double value) {
  if (std::isnan(value)) return 0x7fff;
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double size = std::fabs(value);
  if (size >= 65520) return sign | 0x7c00;
  const int exponent = size < 0x1p-14 ? -14 : std::ilogb(size);
  // In units of the last place, which rint rounds to nearest even; a carry goes into the exponent by itself.
  const auto units = static_cast<int>(std::rint(std::ldexp(size, 10 - exponent)));
  return static_cast<std::uint16_t>(sign | (units + ((exponent + 14) << 10)));
}

inline double f16_fma_exactly(double a, double b, double c) {
  const double product = a * b;  // exact
  const double sum = product + c;
  if (!std::isfinite(sum)) return sum;
  // What the sum's rounding lost tells, where it ended half-way between two fp16 values, to which side it belongs.
  const double part = sum - product;
  const double lost = (product - (sum - part)) + (c - part);
  if (lost == 0 || (std::bit_cast<std::uint64_t>(sum) & 1)) return sum;
  return std::nextafter(sum, lost > 0 ? HUGE_VAL : -HUGE_VAL);
}

inline std::uint16_t fma_f16(std::uint16_t a, std::uint16_t b, std::uint16_t c) {
  return double_to_f16(f16_fma_exactly(f16_to_float(a), f16_to_float(b), f16_to_float(c)));
}
inline std::uint16_t fma_saturated_f16(std::uint16_t a, std::uint16_t b, std::uint16_t c) {
  const double v = f16_fma_exactly(f16_to_float(a), f16_to_float(b), f16_to_float(c));
  return v > 0 ? double_to_f16(v < 1 ? v : 1) : std::uint16_t{0};  // NaN: 0
}
inline std::uint16_t larger_f16(std::uint16_t a, std::uint16_t b, std::uint16_t) {
  const float x = f16_to_float(a), y = f16_to_float(b);
  if (std::isnan(x) || std::isnan(y)) return 0x7fff;
  if (x == y) return (a & 0x8000) ? b : a;  // +0 is larger than -0
  return x > y ? a : b;
}

inline std::uint16_t tanh_f16(std::uint16_t a, std::uint16_t, std::uint16_t) {
  return double_to_f16(std::tanh(static_cast<double>(f16_to_float(a))));
}

// The nearest number of so many significant bits: what a result with an error of half their last place may be.
inline float rounded_to_bits(float v, int bits) {
  if (!std::isfinite(v) || v == 0) return v;
  const int exponent = std::ilogb(v);
  return std::ldexp(std::rint(std::ldexp(v, bits - 1 - exponent)), exponent - bits + 1);
}

template <typename F>
std::uint32_t each_half(F f, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto low = [](std::uint32_t v) { return static_cast<std::uint16_t>(v); };
  const auto high = [](std::uint32_t v) { return static_cast<std::uint16_t>(v >> 16); };
  return std::uint32_t{f(low(a), low(b), low(c))} | std::uint32_t{f(high(a), high(b), high(c))} << 16;
}

}  // namespace gnomon::emulator
