// Barriers in shared memory (mbarrier) and the cluster's barrier: one instruction per function. A shared-memory address
// is 32 bits; an address of another CTA of the cluster comes from `address_in`. A barrier's phase ends when its
// arrivals and its expected bytes are all in; waiting names the parity of the phase, 0 for the first.
#pragma once

#include "mma.cuh"

namespace gnomon::kernels {

// Where `address` of this CTA's shared memory lies in the CTA of that rank.
__device__ __forceinline__ u32 address_in(u32 rank, u32 address) {
  u32 r;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
  return r;
}

__device__ __forceinline__ u32 cluster_rank() {
  u32 r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}

// Numbers of a thread, a block and its place, read anew at each call: kept through a long kernel, they would be
// spilled.
__device__ __forceinline__ int thread_anew() {
  int t;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
  return t;
}
__device__ __forceinline__ int block_anew() {
  int block;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  return block;
}
__device__ __forceinline__ int blocks_anew() {
  int blocks;
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
  return blocks;
}
__device__ __forceinline__ u32 cluster_rank_anew() {
  u32 r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}

// Also orders shared memory: what one thread wrote before it, every thread of the cluster sees after it.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same, but memory is not ordered: enough after mbarrier::fence_init.
__device__ __forceinline__ void cluster_barrier_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The latter in two halves: every thread of the cluster arrives, later waits for all, and then leaves.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// `id` 0 is __syncthreads.
__device__ __forceinline__ void named_barrier(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The same, which says whether the value is true in any thread.
__device__ __forceinline__ bool named_barrier_any(u32 id, u32 threads, bool value) {
  u32 any;
  asm volatile(
      "{\n.reg .pred value, any;\n"
      "setp.ne.u32 value, %3, 0;\n"
      "barrier.red.or.pred any, %1, %2, value;\n"
      "selp.u32 %0, 1, 0, any;\n}"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(u32{value})
      : "memory");
  return any != 0;
}

namespace mbarrier {

__device__ __forceinline__ void init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine and to the cluster; a cluster_barrier must follow.
__device__ __forceinline__ void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// In any CTA of the cluster: takes an address of `address_in`. It orders this CTA's memory only: enough to say that an
// operand has been read, or beside bytes that the copy engine counts. With the cluster's scope the compiler fences
// every arrival and drops the L1 cache after every wait: half of the kernel's time, measured.
__device__ __forceinline__ void arrive_remote(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void arrive_expecting(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ bool try_wait(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n.reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// Never suspends the thread.
__device__ __forceinline__ bool is_done(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n.reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

__device__ __forceinline__ void wait(u32 barrier, u32 parity) {
  while (!try_wait(barrier, parity)) {
  }
}

}  // namespace mbarrier
}  // namespace gnomon::kernels
