// The split form's weights and barriers. Each warpgroup reads its own part of the weights, once, from its own stages of
// the ring, which a thread of its own fills: a copy takes that thread 300 cycles.
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

  // By the first lane of every warp: the lanes of a warp take turns, 70 cycles each.
  static __device__ __forceinline__ void init() {
    for (int i = threadIdx.x / 32; i < kCount; i += S::l.threads / 32) {
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
  const int group;
  Place<S::l.group_stages> at;

  __device__ __forceinline__ explicit SplitProducer(int of) : group(of) {}

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
  // the present ones' second, so that activations are computed under a product; or those of all units do.
  static __device__ __forceinline__ int packed(int block) {
    if (block < 5 || block == kBlocks - 1) return block;
    if constexpr (S::l.whole_hidden) return block < 4 + S::l.chunks ? 2 * block - 4 : 2 * (block - S::l.chunks) - 3;
    return block % 2 != 0 ? block + 1 : block - 1;
  }

  __device__ __forceinline__ void load_block(const Call& p, int block) {
    const char* from =
        static_cast<const char*>(p.weights) + i64{block} * S::l.units * S::l.tile_bytes + group * S::l.stage_bytes;
#pragma unroll 1
    for (int i = 0; i < S::l.units; ++i, from += S::l.tile_bytes) {
      const int stage = at.stage * S::c.groups + group;
      const u32 full = barriers::full(stage);
      mbarrier::wait(barriers::empty(stage), at.round ^ 1);
      mbarrier::arrive_expecting(full, S::l.stage_bytes);
      bulk_load(shared_base() + S::l.ring_at + stage * S::l.stage_bytes, from, S::l.stage_bytes, full);
      at.advance();
    }
  }
};

// A warp's view of its warpgroup's stages. Tiles are numbered within a layer; where stages are not known from the
// number, only distances count.
template <typename S>
struct SplitConsumer {
  using barriers = SplitBarriers<S>;
  int place;           // among two rounds' stages; where these are known, the warpgroup
  bool ready = false;  // the next tile is known to be there

  __device__ __forceinline__ explicit SplitConsumer(int group) : place(group) {}

  template <int kTile>
  __device__ __forceinline__ void find(u32 layer_parity, int& stage, bool& odd) const {
    if constexpr (S::l.known_stages) {
      constexpr int kRounds = S::l.group_tiles / S::l.group_stages, kOf = kTile % S::l.group_tiles;
      constexpr bool kNextLayer = kTile >= S::l.group_tiles;
      odd = kOf / S::l.group_stages % 2 ^ (kRounds % 2 ? layer_parity ^ kNextLayer : 0);
      stage = kOf % S::l.group_stages * S::c.groups + place;
    } else {
      odd = place >= S::l.stages;
      stage = odd ? place - S::l.stages : place;
    }
  }
  template <int kTile>
  __device__ __forceinline__ u32 next(u32 layer_parity) {
    bool odd;
    int stage;
    find<kTile>(layer_parity, stage, odd);
    if (!S::l.look_ahead || !ready) mbarrier::wait(barriers::full(stage), odd);
    if constexpr (!S::l.known_stages) {
      place += S::c.groups;
      if (place >= 2 * S::l.stages) place -= 2 * S::l.stages;
    }
    return shared_base() + S::l.ring_at + stage * S::l.stage_bytes;
  }
  // Asks for tile kTile, the next one, ahead: an answer takes 60 cycles even if it is yes.
  template <int kTile>
  __device__ __forceinline__ void look(u32 layer_parity) {
    if constexpr (S::l.look_ahead) {
      bool odd;
      int stage;
      find<kTile>(layer_parity, stage, odd);
      ready = mbarrier::is_done(barriers::full(stage), odd);
    }
  }
  // Tile kTile has been read; kNext is the next one that will be asked for.
  template <int kTile, int kNext>
  __device__ __forceinline__ void release() const {
    int stage;
    if constexpr (S::l.known_stages) {
      stage = kTile % S::l.group_stages * S::c.groups + place;
    } else {
      stage = place - (kNext - kTile) * S::c.groups;
      if (stage >= S::l.stages) stage -= S::l.stages;
      if (stage < 0) stage += S::l.stages;
    }
    if (threadIdx.x % 32 == 0) mbarrier::arrive(barriers::empty(stage));
  }
};

}  // namespace gnomon::kernels::resident
