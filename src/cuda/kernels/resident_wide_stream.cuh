// The wide form's barriers, and the weights' way into a CTA: a producer thread fills each warpgroup's ring.
#pragma once

#include "bulk_copy.cuh"
#include "resident_stream.cuh"
#include "resident_wide_layout.cuh"

namespace gnomon::kernels::resident {

template <typename S>
struct WideBarriers {
  static __device__ __forceinline__ u32 at(int i) { return shared_base() + S::l.barriers_at + 8 * i; }
  // Stages alternate between the warpgroups.
  static __device__ __forceinline__ u32 full(int stage) { return at(stage); }
  static __device__ __forceinline__ u32 empty(int stage) { return at(S::l.stages + stage); }
  // The other CTA's half of the operand is there.
  static __device__ __forceinline__ u32 operand_full() { return at(2 * S::l.stages); }
  // The exchanged panels are there, and have been read by all warpgroups of the cluster.
  static __device__ __forceinline__ u32 exchange_full() { return at(2 * S::l.stages + 1); }
  static __device__ __forceinline__ u32 exchange_free() { return at(2 * S::l.stages + 2); }
  // The other CTA's statistics are there; the other CTA has read this one's.
  static __device__ __forceinline__ u32 moments_full() { return at(2 * S::l.stages + 3); }
  static __device__ __forceinline__ u32 moments_read() { return at(2 * S::l.stages + 4); }
  // The other CTA's warpgroup has read V, over which a head's output goes.
  static __device__ __forceinline__ u32 values_free(int group) { return at(2 * S::l.stages + 5 + group); }

  static __device__ __forceinline__ void init() {
    for (int i = 0; i < S::l.stages; ++i) mbarrier::init(full(i), 1), mbarrier::init(empty(i), 4);
    mbarrier::init(operand_full(), 2 * S::l.kGroups);
    mbarrier::init(exchange_full(), S::l.kGroups);
    mbarrier::init(exchange_free(), 2 * S::l.kGroups);
    mbarrier::init(moments_full(), S::l.token_warps);
    mbarrier::init(moments_read(), S::l.token_warps);
    for (int i = 0; i < S::l.kGroups; ++i) mbarrier::init(values_free(i), 4);
    mbarrier::fence_init();
  }
};

// Reads the packed weights in the order in which a warpgroup (resident_wide.cuh) does. It has few registers: what is
// known of the thread is not kept.
template <typename S>
struct WideProducer {
  using barriers = WideBarriers<S>;
  const char* weights = nullptr;  // of the layer
  u32 tile = 0;                   // so far

  static __device__ __forceinline__ int group() { return thread_anew() / 32 - 4 * S::l.kGroups; }
  static __device__ __forceinline__ int rank() { return static_cast<int>(cluster_rank_anew()); }

  // Of a block of weights the outputs [64 row, 64 row + 64), of its first inputs.
  static __device__ __forceinline__ u32 outputs(u32 block, u32 row) {
    return block * (S::l.units * S::l.tile_bytes) + row * S::l.stage_bytes;
  }

  __device__ __forceinline__ void load(u32 at) {
    const int stage = tile % S::l.kGroupStages * S::l.kGroups + group();
    mbarrier::wait(barriers::empty(stage), tile / S::l.kGroupStages % 2 ^ 1);
    mbarrier::arrive_expecting(barriers::full(stage), S::l.stage_bytes);
    bulk_load(shared_base() + S::l.ring_at + stage * S::l.stage_bytes, weights + at, S::l.stage_bytes,
              barriers::full(stage));
    ++tile;
  }

  // A panel of outputs of all inputs, this CTA's half first.
  __device__ __forceinline__ void load_row(int block, int row) {
    const u32 from = outputs(block, row);
#pragma unroll 1
    for (int i = 0; i < 8; ++i) load(from + (i ^ rank() * S::l.panels) * S::l.tile_bytes);
  }

  // The warpgroup's two panels of outputs of four panels of inputs, the first of them numbered: this CTA's two, then
  // the other's.
  __device__ __forceinline__ void load_exchanged(int block, int first, int apart) {
    const u32 from = outputs(block, rank() * S::l.panels + 2 * group());
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      const int input = first + (i / 4 ^ rank()) * apart + i / 2 % 2;
      load(from + input * S::l.tile_bytes + i % 2 * S::l.stage_bytes);
    }
  }

  __device__ __forceinline__ void load_hidden(int step) {
    load_row(4 + step / 2 * 2, step % 2 * 4 + 2 * rank() + group());
  }

  __device__ __forceinline__ void load_layer() {
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {
      const int head = rank() * S::l.panels + 2 * round + group();
      load_row(2, head);
      if (round == 1) load_exchanged(3, 0, S::l.panels);
      load_row(0, head);
      load_row(1, head);
    }
    load_exchanged(3, 2, S::l.panels);
    load_hidden(0);
#pragma unroll 1
    for (int step = 0; step < S::l.steps; ++step) {
      if (step + 1 < S::l.steps) load_hidden(step + 1);
      load_exchanged(5 + step / 2 * 2, step % 2 * 4, 2);
    }
  }

  __device__ __forceinline__ void run(const Call& p) {
#pragma unroll 1
    for (int sequence = block_anew() / 2; sequence < p.batch; sequence += blocks_anew() / 2) {
      weights = static_cast<const char*>(p.weights);
#pragma unroll 1
      for (int layer = 0; layer < p.layers; ++layer, weights += i64{S::l.layer_tiles} * S::l.tile_bytes) load_layer();
    }
  }
};

}  // namespace gnomon::kernels::resident
