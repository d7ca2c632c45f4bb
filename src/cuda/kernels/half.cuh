// Instruction wrappers: conversions of the 16-bit float types, and arithmetic in them. Conversions round to nearest
// even; a value too large for fp16 becomes infinite, NaN stays NaN.
#pragma once

#include "types.cuh"

namespace gnomon::kernels {

__device__ __forceinline__ float to_float(f16 v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits));
  return r;
}

template <>
__device__ __forceinline__ f16 from_float<f16>(float v) {
  f16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
  return r;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float v) {
  bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
  return r;
}

// Two values side by side, `low` in the low half: how tensor-core operands lie in a register.
template <typename T>
__device__ __forceinline__ u32 pack2(float low, float high);
template <>
__device__ __forceinline__ u32 pack2<f16>(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <>
__device__ __forceinline__ u32 pack2<bf16>(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// Two fp16 values side by side: a * b + c and a * b, also saturated to [0, 1]; the larger, NaN where one is.
__device__ __forceinline__ u32 fma_pair(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
__device__ __forceinline__ u32 fma_pair_saturated(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.sat.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
__device__ __forceinline__ u32 multiply_pair(u32 a, u32 b) {
  u32 r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
__device__ __forceinline__ u32 multiply_pair_saturated(u32 a, u32 b) {
  u32 r;
  asm("mul.rn.sat.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
__device__ __forceinline__ u32 larger_pair(u32 a, u32 b) {
  u32 r;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

// Hyperbolic tangent by the special-function unit: of a float with a relative error of 2^-11, of a pair of fp16 values
// with that of fp16.
__device__ __forceinline__ float tanh_fast(float v) {
  float r;
  asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
__device__ __forceinline__ u32 tanh_pair(u32 v) {
  u32 r;
  asm("tanh.approx.f16x2 %0, %1;" : "=r"(r) : "r"(v));
  return r;
}

}  // namespace gnomon::kernels
