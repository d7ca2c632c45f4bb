// Copies by the copy engine: one thread asks for many bytes, and their arrival counts on an mbarrier. Addresses and
// sizes are multiples of 16 bytes.
#pragma once

#include "mbarrier.cuh"

namespace gnomon::kernels {

// Device memory to this CTA's shared memory.
__device__ __forceinline__ void bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
               : "memory");
}

// The same to each CTA of the cluster that `ranks` has a bit for, at the same address and on the same barrier in each.
__device__ __forceinline__ void bulk_load_multicast(u32 to, const void* from, u32 bytes, u32 barrier, u16 ranks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
      "%4;" ::"r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier), "h"(ranks)
      : "memory");
}

// This CTA's shared memory to another CTA's; `to` and `barrier` are addresses of `address_in`.
__device__ __forceinline__ void bulk_send(u32 to, u32 from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "r"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// The same of 16 bytes in registers.
__device__ __forceinline__ void send_registers(u32 to, const u32 (&v)[4], u32 barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ void prefetch_to_l2(const void* from, u32 bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}

// What this thread wrote to shared memory becomes visible to the copy engine and to wgmma; a barrier must follow.
__device__ __forceinline__ void publish_shared_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace gnomon::kernels
