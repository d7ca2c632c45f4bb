// The 16-bit float types as bits. Conversions are single PTX instructions and round to nearest
// even; a value too large for fp16 becomes infinite, NaN stays NaN. Nothing outside this folder is included: a machine
// with only the driver and NVRTC compiles these files.
#pragma once

#include "params.cuh"

namespace gnomon::kernels {

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

struct none {};  // in place of an element type: there is no such tensor

template <typename A, typename B>
constexpr bool same_type = false;
template <typename A>
constexpr bool same_type<A, A> = true;

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__host__ __device__ constexpr int round_up(int a, int b) { return ceil_div(a, b) * b; }

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(f16 v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits));
  return r;
}
__device__ __forceinline__ float to_float(bf16 v) { return __uint_as_float(u32{v.bits} << 16); }

__device__ __forceinline__ double to_double(double v) { return v; }
template <typename T>
__device__ __forceinline__ double to_double(T v) {
  return to_float(v);
}

template <typename T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v) {
  return v;
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

// Neither NaN nor infinite.
__device__ __forceinline__ bool is_finite(float v) { return (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u; }

}  // namespace gnomon::kernels
