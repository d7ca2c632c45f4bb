// The element types of tensors. The 16-bit ones are bits; their conversions are in half.cuh. Nothing outside this
// folder is included: a machine with only the driver and NVRTC compiles these files.
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

// Neither NaN nor infinite.
__device__ __forceinline__ bool is_finite(float v) { return (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u; }

}  // namespace gnomon::kernels
