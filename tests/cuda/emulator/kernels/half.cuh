// In place of src/cuda/kernels/half.cuh: the 16-bit types and what is computed in them, to the bit.
#pragma once

#include "core/half.hpp"
#include "cuda/emulator/cuda_syntax.hpp"
#include "cuda/emulator/half_arithmetic.hpp"
#include "types.cuh"

namespace gnomon::kernels {

inline float to_float(f16 v) { return f16_to_float(v.bits); }

template <>
inline f16 from_float<f16>(float v) {
  return {float_to_f16(v)};
}
template <>
inline bf16 from_float<bf16>(float v) {
  return {float_to_bf16(v)};
}

template <typename T>
u32 pack2(float low, float high) {
  return u32{from_float<T>(low).bits} | u32{from_float<T>(high).bits} << 16;
}

inline u32 fma_pair(u32 a, u32 b, u32 c) { return emulator::each_half(emulator::fma_f16, a, b, c); }
inline u32 fma_pair_saturated(u32 a, u32 b, u32 c) { return emulator::each_half(emulator::fma_saturated_f16, a, b, c); }
inline u32 multiply_pair(u32 a, u32 b) { return emulator::each_half(emulator::fma_f16, a, b, 0x80008000u); }
inline u32 multiply_pair_saturated(u32 a, u32 b) {
  return emulator::each_half(emulator::fma_saturated_f16, a, b, 0x80008000u);
}
inline u32 larger_pair(u32 a, u32 b) { return emulator::each_half(emulator::larger_f16, a, b, 0); }

inline float tanh_fast(float v) { return emulator::rounded_to_bits(std::tanh(v), 11); }
inline u32 tanh_pair(u32 v) { return emulator::each_half(emulator::tanh_f16, v, 0, 0); }

}  // namespace gnomon::kernels
