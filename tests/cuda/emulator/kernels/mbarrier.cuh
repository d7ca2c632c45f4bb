// In place of src/cuda/kernels/mbarrier.cuh.
#pragma once

#include "mma.cuh"

namespace gnomon::kernels {

inline u32 address_in(u32 rank, u32 address) { return emulator::address_in_rank(rank, address); }
inline u32 cluster_rank() { return static_cast<u32>(emulator::current->cta->rank); }
inline int thread_anew() { return emulator::current->number; }
inline int block_anew() { return static_cast<int>(blockIdx.x); }
inline int blocks_anew() { return static_cast<int>(gridDim.x); }
inline u32 cluster_rank_anew() { return cluster_rank(); }

inline void cluster_barrier() { emulator::cluster_barrier(); }
inline void cluster_barrier_relaxed() { emulator::cluster_barrier(); }
inline void cluster_arrive_relaxed() { emulator::cluster_arrive(); }
inline void cluster_wait() { emulator::cluster_wait(); }
inline void named_barrier(u32 id, u32 threads) { emulator::named_barrier(id, threads); }
inline bool named_barrier_any(u32 id, u32 threads, bool value) {
  return emulator::named_barrier_any(id, threads, value);
}

namespace mbarrier {

inline void init(u32 barrier, u32 arrivals) { emulator::mbarrier_init(barrier, arrivals); }
inline void fence_init() { emulator::mbarrier_fence_init(); }
inline void arrive(u32 barrier) { emulator::mbarrier_arrive(barrier, false, 0); }
inline void arrive_remote(u32 barrier) { emulator::mbarrier_arrive(barrier, true, 0); }
inline void arrive_expecting(u32 barrier, u32 bytes) { emulator::mbarrier_arrive(barrier, false, bytes); }
inline bool try_wait(u32 barrier, u32 parity) { return emulator::mbarrier_try_wait(barrier, parity); }
inline bool is_done(u32 barrier, u32 parity) { return emulator::mbarrier_test_wait(barrier, parity); }
inline void wait(u32 barrier, u32 parity) {
  while (!try_wait(barrier, parity)) {
  }
}

}  // namespace mbarrier
}  // namespace gnomon::kernels
