// Loads and stores as single instructions, where the compiler must not gather, move or branch over its own. Addresses
// of shared memory are 32 bits (shared_address).
#pragma once

#include "half.cuh"

namespace gnomon::kernels {

// The same value, of which the compiler knows nothing: what follows from it is made anew, not kept.
__device__ __forceinline__ u32 anew(u32 v) {
  asm volatile("" : "+r"(v));
  return v;
}

__device__ __forceinline__ u32 load_shared(u32 address) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void store_shared(u32 address, u32 v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
__device__ __forceinline__ void store_shared(u32 address, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}

__device__ __forceinline__ float4 shared_floats(u32 address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address));
  return v;
}

__device__ __forceinline__ float2 shared_pair(u32 address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address));
  return v;
}

// Two floats of device memory, or zeros. The predicate is the instruction's: branches over loads of whole rows cost
// registers.
__device__ __forceinline__ void load_pair(float& first, float& second, const float* from, bool there) {
  asm volatile(
      "{\n.reg .pred there;\nsetp.ne.b32 there, %3, 0;\nmov.f32 %0, 0f00000000;\nmov.f32 %1, 0f00000000;\n"
      "@there ld.global.v2.f32 {%0, %1}, [%2];\n}"
      : "=&f"(first), "=&f"(second)
      : "l"(from), "r"(int{there})
      : "memory");
}

// A 16-bit load of device memory that the compiler does not gather with its neighbours: registers are dear where it is
// used, and time is not.
template <typename T>
__device__ __forceinline__ T load_in_order(const T* from) {
  T value;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(value.bits) : "l"(from) : "memory");
  return value;
}

}  // namespace gnomon::kernels
