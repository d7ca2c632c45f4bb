// The 16-bit types as bits in a uint16_t. Widening is exact; narrowing rounds to nearest even, as PyTorch does.
#pragma once

#include <bit>
#include <cstdint>

namespace gnomon {

inline float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);  // NaN stays NaN
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits} << 16 & 0x80000000u;
  const std::uint32_t magnitude = std::uint32_t{bits} << 13 & 0x0fffe000u;
  // Read as a float, the exponent is 112 too small; the multiplication mends it and normalises subnormals.
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const std::uint32_t special = (bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}

inline std::uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // >= 65520: infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the multiple of 2^-24, rounded, in the low bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rebased = magnitude - 0x38000000u;
  return static_cast<std::uint16_t>(sign | (rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13);
}

}  // namespace gnomon
