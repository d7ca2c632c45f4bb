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

// Sums over a group of kLanes threads: part of a warp, or the whole block when it is larger than a warp. `slots` holds
// a float per warp and sum; two calls in a row need two different arrays, since the second may begin before all have
// read the first.
template <int kLanes, int kSums>
__device__ __forceinline__ void sum_group(float (&v)[kSums], float (&slots)[kSums][32]) {
  constexpr int kOfWarp = kLanes <= 32 ? kLanes : 32;
#pragma unroll
  for (int s = 0; s < kSums; ++s) v[s] = sum_lanes<kOfWarp>(v[s]);
  if constexpr (kLanes > 32) {  // the block is one group
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      if (threadIdx.x % 32 == 0) slots[s][threadIdx.x / 32] = v[s];
    }
    __syncthreads();
    constexpr int kWarps = kLanes / 32;
#pragma unroll
    for (int s = 0; s < kSums; ++s) v[s] = sum_lanes<kWarps>(slots[s][threadIdx.x % kWarps]);
  }
}

}  // namespace gnomon::kernels
