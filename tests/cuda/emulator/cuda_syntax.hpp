// What CUDA C++ has beyond C++, as far as our kernels use it: keywords, built-in variables, vector types, intrinsics.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/emulator/barriers.hpp"
#include "cuda/emulator/collectives.hpp"
#include "cuda/emulator/engine.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// Each CTA of a cluster runs in a thread of the system (engine.hpp). Dynamic shared memory, `extern __shared__`, is
// defined in shared_memory.cpp and holds NaN at first; what is declared inside a kernel keeps what the CTA before left.
#define __shared__ thread_local

#define threadIdx (::gnomon::emulator::current->thread_index)
#define blockIdx (::gnomon::emulator::current->block_index)
#define blockDim (::gnomon::emulator::current->block_dim)
#define gridDim (::gnomon::emulator::current->grid_dim)

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }

inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline int __float_as_int(float v) { return std::bit_cast<int>(v); }
inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline float __int_as_float(int v) { return std::bit_cast<float>(v); }
inline float __int_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline long long __double_as_longlong(double v) { return std::bit_cast<long long>(v); }
inline double __longlong_as_double(long long v) { return std::bit_cast<double>(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v)); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }

// Correctly rounded, like the build's own arithmetic (-ffp-contract=off).
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
// Within two units in the last place there; a divisor beyond 2^126 gives 0.
inline float __fdividef(float a, float b) { return std::fabs(b) > 0x1p126f ? a * 0 : a / b; }
inline float __saturatef(float v) { return v > 0 ? (v < 1 ? v : 1) : 0; }  // NaN: 0
inline float rsqrtf(float v) { return 1 / std::sqrt(v); }

inline void __syncthreads() { gnomon::emulator::sync_threads(); }
inline int __syncthreads_or(int value) { return gnomon::emulator::sync_threads_or(value != 0); }
inline void __syncwarp(unsigned mask = ~0u) { gnomon::emulator::sync_warp(mask); }
inline void __threadfence() {}
inline void __threadfence_block() {}

template <typename T>
T gnomon_emulated_shuffle(unsigned mask, T value, int source) {
  static_assert(std::is_arithmetic_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = gnomon::emulator::shuffle(mask, bits, source);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return gnomon_emulated_shuffle(mask, value, lane % 32);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int step) {
  return gnomon_emulated_shuffle(mask, value, gnomon::emulator::current->lane ^ step);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, int step) {
  const int lane = gnomon::emulator::current->lane;
  return gnomon_emulated_shuffle(mask, value, lane < step ? lane : lane - step);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, int step) {
  const int lane = gnomon::emulator::current->lane;
  return gnomon_emulated_shuffle(mask, value, lane + step > 31 ? lane : lane + step);
}
inline unsigned __ballot_sync(unsigned mask, bool value) { return gnomon::emulator::ballot(mask, value); }
inline int __any_sync(unsigned mask, bool value) { return gnomon::emulator::ballot(mask, value) != 0; }
inline int __all_sync(unsigned mask, bool value) { return gnomon::emulator::ballot(mask, !value) == 0; }

// Fibers take turns: any sequence of statements without a wait is atomic. Others may have come first.
template <typename T, typename F>
T gnomon_emulated_atomic(T* at, F&& next) {
  gnomon::emulator::yield_sometimes();
  const T before = *at;
  *at = next(before);
  return before;
}
template <typename T>
T atomicAdd(T* at, std::type_identity_t<T> v) {
  return gnomon_emulated_atomic(at, [&](T old) { return static_cast<T>(old + v); });
}
template <typename T>
T atomicOr(T* at, std::type_identity_t<T> v) {
  return gnomon_emulated_atomic(at, [&](T old) { return old | v; });
}
template <typename T>
T atomicMax(T* at, std::type_identity_t<T> v) {
  return gnomon_emulated_atomic(at, [&](T old) { return old > v ? old : v; });
}
template <typename T>
T atomicMin(T* at, std::type_identity_t<T> v) {
  return gnomon_emulated_atomic(at, [&](T old) { return old < v ? old : v; });
}
template <typename T>
T atomicExch(T* at, std::type_identity_t<T> v) {
  return gnomon_emulated_atomic(at, [&](T) { return v; });
}
inline unsigned atomicInc(unsigned* at, unsigned last) {
  return gnomon_emulated_atomic(at, [&](unsigned old) { return old >= last ? 0 : old + 1; });
}
