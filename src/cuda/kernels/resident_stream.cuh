// The weights' way into a CTA: a producer thread fills a ring of shared-memory stages ahead of the warpgroups that read
// them. The CTAs of a cluster read the same tiles at nearly the same time, so each fetches its part of a tile and
// multicasts it to all.
#pragma once

#include "bulk_copy.cuh"
#include "resident_layout.cuh"
#include "wgmma_operand.cuh"

namespace gnomon::kernels::resident {

// Where this CTA's shared memory begins: a constant, the same in every CTA.
__device__ __forceinline__ u32 shared_base() {
  extern __shared__ __align__(1024) char memory[];
  return shared_address(memory);
}

// The addresses of a CTA's barriers.
template <typename S>
struct Barriers {
  static __device__ __forceinline__ u32 at(int i) { return shared_base() + S::l.barriers_at + 8 * i; }
  // Of each tile of a layer, not of each stage: a phase is a layer, and the address a constant.
  static __device__ __forceinline__ u32 full(int tile) { return at(tile); }
  static __device__ __forceinline__ u32 empty(int stage) { return at(S::l.layer_tiles + stage); }
  static __device__ __forceinline__ u32 vectors_full(int stage) { return at(S::l.layer_tiles + S::l.stages + stage); }
  static __device__ __forceinline__ u32 vectors_empty(int stage) { return vectors_full(S::l.vector_stages + stage); }
  // K and V of a tile of keys are there, or read for the last time.
  static __device__ __forceinline__ u32 keys_ready(int i) { return vectors_full(2 * S::l.vector_stages + i); }
  static __device__ __forceinline__ u32 keys_free(int group) { return keys_ready(S::l.ready_barriers + group); }

  // By a lane of each warp: the lanes of one take turns, 70 cycles a barrier.
  static __device__ __forceinline__ void init() {
    constexpr int kWarps = 4 * S::c.groups;
    const int first_slot = static_cast<int>(cluster_rank()) * S::c.groups;
    for (int i = threadIdx.x / 32; i < S::l.barriers; i += S::l.threads / 32) {
      const u32 barrier = at(i);
      int arrivals = 1;  // full, vectors_full: the producer, beside the bytes
      if (barrier >= keys_free(0)) {
        const int tile = (first_slot + i - (S::l.barriers - S::c.groups)) % S::l.tiles;
        arrivals = 4 * (S::c.causal ? S::l.tiles - tile : S::l.tiles);
      } else if (barrier >= keys_ready(0)) {
        const int tile = i - (S::l.barriers - S::c.groups - S::l.ready_barriers);
        const bool own = S::c.groups >= S::l.tiles || tile == first_slot % S::l.tiles;
        arrivals = own ? 4 : 1;  // the warps that store them, or the bytes of another CTA
      } else if (barrier >= vectors_empty(0)) {
        arrivals = 128 * S::c.groups;
      } else if (barrier >= empty(0) && barrier < vectors_full(0)) {
        arrivals = kWarps * S::c.cluster;  // a stage is refilled in all CTAs at once
      }
      mbarrier::init(barrier, arrivals);
    }
    mbarrier::fence_init();
  }
};

// A place in a ring, and the parity of its present round.
template <int kStages>
struct Place {
  int stage = 0;
  u32 round = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, round ^= 1;
  }
};

// Clusters take turns: how many sequences all of them take in a round, and this one's first.
template <typename S>
__device__ __forceinline__ int round_sequences() {
  return static_cast<int>(gridDim.x) / S::c.cluster * S::l.sequences;
}
template <typename S>
__device__ __forceinline__ int first_sequence() {
  return block_anew() / S::c.cluster * S::l.sequences;
}

template <typename S>
struct Producer {
  using barriers = Barriers<S>;
  Place<S::l.stages> at;
  Place<S::l.vector_stages> vectors_at;

  __device__ __forceinline__ void run(const Call& p) {
    const int own = static_cast<int>(cluster_rank()) * S::c.groups / S::l.tiles;  // of the cluster's sequences
    for (int first = first_sequence<S>(); first < p.batch; first += round_sequences<S>()) {
      prefetch(p, first + round_sequences<S>() + own);
      for (int i = 0; i < p.layers; ++i) {
        send_vectors(p, i);
        send_blocks(p, i);
        send_steps(p, i);
      }
    }
  }

  // The CTA's next sequences, on their way from device memory while the present ones are computed.
  __device__ __forceinline__ void prefetch(const Call& p, int sequence) const {
    const bool aligned = (reinterpret_cast<u64>(p.input) | 4 * static_cast<u64>(p.input_sequence)) % 16 == 0;
    if (p.input_token != S::c.model || !aligned) return;
    constexpr int kFloats = S::c.seq * S::c.model;
    for (int i = 0; i < S::l.local_sequences && sequence + i < p.batch; ++i) {
      prefetch_to_l2(p.input + (sequence + i) * p.input_sequence, 4 * kFloats);
    }
  }

  __device__ __forceinline__ void send_vectors(const Call& p, int layer) {
    const u32 vectors_full = barriers::vectors_full(vectors_at.stage);
    mbarrier::wait(barriers::vectors_empty(vectors_at.stage), vectors_at.round ^ 1);
    mbarrier::arrive_expecting(vectors_full, S::l.vector_bytes);
    bulk_load(shared_base() + S::l.vectors_at + vectors_at.stage * S::l.vector_bytes,
              p.vectors + i64{layer} * S::l.layer_floats + S::l.first_vector, S::l.vector_bytes, vectors_full);
    vectors_at.advance();
  }

  static __device__ __forceinline__ const char* tile(const Call& p, int layer, int i) {
    return static_cast<const char*>(p.weights) + (i64{layer} * S::l.layer_tiles + i) * S::l.tile_bytes;
  }

  // K, V, Q and the output projection.
  __device__ __forceinline__ void send_blocks(const Call& p, int layer) {
#pragma unroll 1  // the producer's registers are few
    for (int i = 0; i < 4 * S::l.units; ++i) send(i, tile(p, layer, i), S::l.tile_bytes / 2);
  }

  // The feed-forward block, two first products ahead of the second ones.
  __device__ __forceinline__ void send_steps(const Call& p, int layer) {
    int i = 4 * S::l.units;
#pragma unroll 1
    for (int begin = 0; begin < S::l.steps; begin += S::l.steps_together) {
#pragma unroll 1
      for (int s = -2; s < S::l.steps_together; ++s) {
        if (s >= 0) send_second(i++, p, layer, begin + s);
        if (s + 2 < S::l.steps_together) send_first(i++, p, layer, begin + s + 2);
      }
    }
  }

  // A step's rows of the first product's block: a part of each of its tiles.
  __device__ __forceinline__ void send_first(int i, const Call& p, int layer, int step) {
    const char* from = tile(p, layer, (4 + step / S::l.units * 2) * S::l.units);
    if constexpr (S::l.units == 2) {
      send(i, from + step % 2 * (S::l.tile_bytes / 2), S::l.tile_bytes);
    } else {
      send(i, from, S::l.tile_bytes / 2);
    }
  }
  __device__ __forceinline__ void send_second(int i, const Call& p, int layer, int step) {
    send(i, tile(p, layer, (5 + step / S::l.units * 2) * S::l.units + step % S::l.units), S::l.tile_bytes / 2);
  }

  // The layer's i-th tile, of two halves that lie `distance` bytes apart in device memory.
  __device__ __forceinline__ void send(int i, const char* from, u32 distance) {
    const u32 full = barriers::full(i), to = shared_base() + S::l.ring_at + at.stage * S::l.tile_bytes;
    constexpr u32 kHalf = S::l.tile_bytes / 2;
    mbarrier::wait(barriers::empty(at.stage), at.round ^ 1);
    mbarrier::arrive_expecting(full, S::l.tile_bytes);
    if constexpr (S::c.cluster == 1) {
      bulk_load(to, from, kHalf, full);
      bulk_load(to + kHalf, from + distance, kHalf, full);
    } else {
      static_assert(S::c.cluster == 2, "a half for each CTA to fetch");
      const u32 half = cluster_rank();
      bulk_load_multicast(to + half * kHalf, from + half * distance, kHalf, full, 3);
    }
    at.advance();
  }
};

// A warp's view of the stream: tiles in order, each released, in the same order, when the warp's products have read it.
template <typename S>
struct Consumer {
  using barriers = Barriers<S>;
  u32 layers = 0;        // that are done: each barrier's phase follows from it, registers being short
  u32 at;                // the next tile: the low half of its operand, of which the high one is a constant
  u32 oldest;            // the barrier of the oldest tile that is held
  bool arrived = false;  // the next tile, seen when the one before was taken: asking takes some thirty cycles

  static constexpr u32 kTile = S::l.tile_bytes >> 4;
  static __device__ __forceinline__ u64 ring() { return operand<128>(shared_base() + S::l.ring_at); }

  __device__ __forceinline__ Consumer() : at(static_cast<u32>(ring())), oldest(barriers::empty(0)) {}

  // The layer's i-th tile, as an operand.
  __device__ __forceinline__ u64 next_tile(int i) {
    if (!arrived) mbarrier::wait(barriers::full(i), parity());
    const u64 tile = ring() >> 32 << 32 | at;
    at += kTile;
    if (at == static_cast<u32>(ring()) + S::l.stages * kTile) at = static_cast<u32>(ring());
    arrived = i + 1 < S::l.layer_tiles && mbarrier::is_done(barriers::full(i + 1), parity());
    return tile;
  }

  __device__ __forceinline__ void release_tile() {
    const u32 lane = threadIdx.x % 32;
    if constexpr (S::c.cluster == 1) {
      if (lane == 0) mbarrier::arrive(oldest);
    } else {
      if (lane < S::c.cluster) mbarrier::arrive_remote(address_in(lane, oldest));
    }
    oldest += 8;
    if (oldest == barriers::empty(S::l.stages)) oldest = barriers::empty(0);
  }

  __device__ __forceinline__ u32 parity() const { return layers % 2; }

  // This thread's part of the layer's vectors.
  __device__ __forceinline__ u32 next_vectors() {
    mbarrier::wait(barriers::vectors_full(vector_stage()), layers / S::l.vector_stages % 2);
    return shared_base() + S::l.vectors_at + vector_stage() * S::l.vector_bytes - 4 * S::l.first_vector +
           threadIdx.x % 4 * 16;
  }

  // The vectors are released by every thread that has read them. One for its warp would do, and what it arrives for is
  // ordered by the warp's meeting; but racecheck counts what the arriving thread did alone, and 31 arrivals more a
  // layer cost nothing that was seen (#5 89.2 us and 89.7, #7 3.6 ms and 3.4).
  __device__ __forceinline__ void end_layer() {
    mbarrier::arrive(barriers::vectors_empty(vector_stage()));
    ++layers;
  }
  __device__ __forceinline__ u32 vector_stage() const { return layers % S::l.vector_stages; }
};

}  // namespace gnomon::kernels::resident
