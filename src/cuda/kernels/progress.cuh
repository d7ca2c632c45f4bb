// How far a warp has come, as a counter in shared memory that others wait for: what mbarriers do, on chips without
// them. A shared-memory address is 32 bits (shared_address).
#pragma once

#include "half.cuh"

namespace gnomon::kernels {

// What the thread did before it, and what others of its warp did before a __syncwarp, is seen by who sees the count.
__device__ __forceinline__ void publish_progress(u32 counter, u32 count) {
  asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(counter), "r"(count) : "memory");
}

// A look. Counters only grow, and may wrap.
__device__ __forceinline__ bool has_reached(u32 counter, u32 count) {
  u32 now;
  asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(now) : "r"(counter) : "memory");
  return static_cast<i32>(now - count) >= 0;
}

__device__ __forceinline__ void wait_for_progress(u32 counter, u32 count) {
  while (!has_reached(counter, count)) {
  }
}

}  // namespace gnomon::kernels
