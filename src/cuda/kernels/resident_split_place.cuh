// Where a CTA of the split form stands in its cluster, and who needs what of whom.
#pragma once

#include "resident_split_layout.cuh"
#include "resident_stream.cuh"

namespace gnomon::kernels::resident {

// Where registers are short, what follows from the thread's number is made anew each time; elsewhere asking for it
// takes longer.
template <typename S>
__device__ __forceinline__ int split_thread() {
  if constexpr (S::l.registers < 128) return thread_anew();
  return static_cast<int>(threadIdx.x);
}

// This CTA's rank among those that tokens are dealt to, and which half of a pair it is.
template <typename S>
__device__ __forceinline__ u32 token_rank() {
  return (S::l.registers < 128 ? cluster_rank_anew() : cluster_rank()) / S::l.halves;
}
template <typename S>
__device__ __forceinline__ u32 half() {
  return S::l.halves == 1 ? 0 : cluster_rank() % S::l.halves;
}
// The CTA of the cluster that has the tokens of some rank and the same half as this one; and this pair's other one.
template <typename S>
__device__ __forceinline__ u32 cta_of(u32 token_rank) {
  return token_rank * S::l.halves + half<S>();
}
__device__ __forceinline__ u32 other_half() { return cluster_rank() ^ 1; }

// Every thread, once, before it reaches into another CTA.
template <typename S>
__device__ __forceinline__ void meet_cluster() {
  if constexpr (!S::l.early_weights) cluster_arrive_relaxed();
  cluster_wait();
}

// The tokens of the CTA of some rank that are rows of K and V: those that exist, and what pads the last 16.
template <typename S>
__device__ __forceinline__ int keys_of(u32 rank) {
  return min(S::l.rows, S::l.keys - static_cast<int>(rank) * S::l.rows);
}

// Who needs whose keys: in a causal stack nobody those of later tokens.
template <typename S>
__device__ __forceinline__ bool gives_keys(u32 from, u32 to) {
  return from != to && to < S::l.used && (!S::c.causal || from < to);
}

}  // namespace gnomon::kernels::resident
