// Sums over the lanes that share a row. The order of additions is fixed, so that two runs give the same bits.
#pragma once

#include "half.cuh"

namespace gnomon::kernels {

constexpr u32 kAllLanes = 0xffffffffu;

template <int kLanes>
__device__ __forceinline__ float sum_lanes(float v) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) v += __shfl_xor_sync(kAllLanes, v, step);
  return v;
}

template <int kLanes>
__device__ __forceinline__ float max_lanes(float v) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, step));
  return v;
}

// Sum over a group of kLanes threads: part of a warp, or the whole block when it is larger than a warp. `slots` holds a
// float per warp; two sums in a row need two different arrays, since the second may begin before all have read the
// first.
template <int kLanes>
__device__ __forceinline__ float sum_group(float v, float* slots) {
  if constexpr (kLanes <= 32) {
    return sum_lanes<kLanes>(v);
  } else {
    constexpr int kWarps = kLanes / 32;  // the block is one group
    v = sum_lanes<32>(v);
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = v;
    __syncthreads();
    v = slots[threadIdx.x % kWarps];
    return sum_lanes<kWarps>(v);
  }
}

}  // namespace gnomon::kernels
