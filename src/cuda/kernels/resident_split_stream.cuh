// The split form's weights and barriers. A producer thread fills the ring; a stage belongs to one warpgroup, so that
// each weight is read from shared memory once.
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

template <typename S>
struct SplitBarriers {
  static __device__ __forceinline__ u32 full(int stage) { return shared_base() + S::l.barriers_at + 8 * stage; }
  static __device__ __forceinline__ u32 empty(int stage) { return full(S::l.stages + stage); }
  // The other CTAs' K, or V, has come.
  static __device__ __forceinline__ u32 keys_ready() { return full(2 * S::l.stages); }
  static __device__ __forceinline__ u32 values_ready() { return full(2 * S::l.stages + 1); }
  // This CTA's K and V have come to all that need them, who have read them too; and, where hidden units lie over them,
  // these have been read.
  static __device__ __forceinline__ u32 keys_taken() { return full(2 * S::l.stages + 2); }
  static __device__ __forceinline__ u32 keys_free() { return full(2 * S::l.stages + 3); }
  static constexpr int kCount = 2 * S::l.stages + 4;

  // How many CTAs need this one's keys.
  static __device__ __forceinline__ int receivers() {
    return S::c.causal ? S::l.used - 1 - static_cast<int>(cluster_rank()) : S::l.used - 1;
  }

  // By a whole warp, a barrier to a lane.
  static __device__ __forceinline__ void init() {
    for (int i = threadIdx.x % 32; i < kCount; i += 32) {
      const u32 barrier = full(i);
      int arrivals = 1;  // the thread that expects the bytes
      if (barrier >= keys_taken()) {
        arrivals = max(1, receivers());
      } else if (barrier >= empty(0) && barrier < keys_ready()) {
        arrivals = 4;  // the warps of the stage's warpgroup
      }
      mbarrier::init(barrier, arrivals);
    }
    mbarrier::fence_init();
  }
};

template <typename S>
struct SplitProducer {
  using barriers = SplitBarriers<S>;
  static constexpr int kBlocks = 4 + 2 * S::l.chunks;
  Place<S::l.stages> at;

  __device__ __forceinline__ void run(const Call& p) {
    const int clusters = static_cast<int>(gridDim.x) / S::c.cluster;
    for (int sequence = block_anew() / S::c.cluster; sequence < p.batch; sequence += clusters) {
      for (int layer = 0; layer < p.layers; ++layer) {
#pragma unroll 1
        for (int block = 0; block < kBlocks; ++block) load_block(p, layer * kBlocks + packed(block));
      }
    }
  }

  // Where the block that is read at some place of a layer was packed: the next hidden units' first product comes before
  // the present ones' second, so that activations are computed under a product.
  static __device__ __forceinline__ int packed(int block) {
    if (block < 5 || block == kBlocks - 1) return block;
    return block % 2 != 0 ? block + 1 : block - 1;
  }

  __device__ __forceinline__ void load_block(const Call& p, int block) {
    const char* from = static_cast<const char*>(p.weights) + i64{block} * S::l.units * S::l.tile_bytes;
#pragma unroll 1
    for (int i = 0; i < S::l.units * S::c.groups; ++i, from += S::l.stage_bytes) {
      const u32 full = barriers::full(at.stage);
      mbarrier::wait(barriers::empty(at.stage), at.round ^ 1);
      mbarrier::arrive_expecting(full, S::l.stage_bytes);
      bulk_load(shared_base() + S::l.ring_at + at.stage * S::l.stage_bytes, from, S::l.stage_bytes, full);
      at.advance();
    }
  }
};

// A warp's view of its warpgroup's stages.
template <typename S>
struct SplitConsumer {
  using barriers = SplitBarriers<S>;
  int place;  // among two rounds' stages

  __device__ __forceinline__ explicit SplitConsumer(int group) : place(group) {}

  __device__ __forceinline__ u32 next() {
    const bool odd = place >= S::l.stages;
    const int stage = odd ? place - S::l.stages : place;
    mbarrier::wait(barriers::full(stage), odd);
    place += S::c.groups;
    if (place >= 2 * S::l.stages) place -= 2 * S::l.stages;
    return shared_base() + S::l.ring_at + stage * S::l.stage_bytes;
  }
  // The tile that came kAgo tiles ago has been read: 1 is the last one.
  template <int kAgo>
  __device__ __forceinline__ void release() const {
    int stage = place - kAgo * S::c.groups;
    if (stage >= S::l.stages) stage -= S::l.stages;
    if (stage < 0) stage += S::l.stages;
    if (threadIdx.x % 32 == 0) mbarrier::arrive(barriers::empty(stage));
  }
};

}  // namespace gnomon::kernels::resident
