// The split form's weights and barriers. Each warpgroup reads its own part of the weights, once, from its own stages of
// the ring, which a thread of its own fills: a copy takes that thread 300 cycles.
#pragma once

#include "resident_split_place.cuh"

namespace gnomon::kernels::resident {

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
  // This CTA's K, or V, is stored and may be sent.
  static __device__ __forceinline__ u32 keys_stored() { return full(2 * S::l.stages + 4); }
  static __device__ __forceinline__ u32 values_stored() { return full(2 * S::l.stages + 5); }
  // Of the stages over K and V.
  static constexpr int kFirstMore = 2 * S::l.stages + (S::l.sender ? 6 : 4), kMore = S::l.more_stages * S::c.groups;
  static __device__ __forceinline__ u32 more_full(int stage) { return full(kFirstMore + stage); }
  static __device__ __forceinline__ u32 more_empty(int stage) { return full(kFirstMore + kMore + stage); }
  // Nobody reads K and V any more.
  static __device__ __forceinline__ u32 keys_read() { return full(kFirstMore + 2 * kMore); }
  // The other half's sums, of attention or of the feed-forward block, are there.
  static __device__ __forceinline__ u32 sums_ready(int which) { return full(kFirstMore + which); }
  static constexpr int kCount = kFirstMore + (kMore > 0 ? 2 * kMore + 1 : S::l.halves == 2 ? 2 : 0);

  // How many CTAs need this one's keys.
  static __device__ __forceinline__ int receivers() {
    return S::c.causal ? S::l.used - 1 - static_cast<int>(token_rank<S>()) : S::l.used - 1;
  }

  // By the first lane of every warp: the lanes of a warp take turns, 70 cycles each.
  static __device__ __forceinline__ void init() {
    for (int i = threadIdx.x / 32; i < kCount; i += S::l.threads / 32) {
      const u32 barrier = full(i);
      int arrivals = 1;  // the thread that expects the bytes
      if (i >= kFirstMore + 2 * kMore && kMore > 0) {
        arrivals = 128 * S::c.groups;  // keys_read: whoever reads them
      } else if (i >= kFirstMore) {
        arrivals = i >= kFirstMore + kMore && kMore > 0 ? 4 : 1;
      } else if (barrier >= keys_stored()) {
        arrivals = 4 * S::c.groups / S::l.halves;  // the warps that store them
      } else if (barrier >= keys_taken()) {
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
  u32 layer_parity = 0;

  __device__ __forceinline__ explicit SplitProducer(int of) : group(of) {}

  __device__ __forceinline__ void run(const Call& p) {
    const int clusters = static_cast<int>(gridDim.x) / S::c.cluster;
    for (int sequence = block_anew() / S::c.cluster; sequence < p.batch; sequence += clusters) {
      for (int layer = 0; layer < p.layers; ++layer) {
        if constexpr (S::l.halves == 2) load_half(p, layer * kBlocks);
#pragma unroll 1
        for (int block = S::l.halves == 2 ? kBlocks : 0; block < kBlocks; ++block) {
          if (S::l.more_stages > 0 && block >= 4) {
            load_wide(p, layer * kBlocks + packed(block), block);
          } else {
            load_block(p, layer * kBlocks + packed(block));
          }
        }
        layer_parity ^= 1;
      }
    }
  }

  // Of a pair: what this half reads of a layer.
  __device__ __forceinline__ void load_half(const Call& p, int first_block) {
#pragma unroll 1
    for (int i = 0; i < S::l.group_tiles; ++i) {
      const int stage = at.stage * S::c.groups + group, offset = half_tile(i);
      const u32 full = barriers::full(stage);
      mbarrier::wait(barriers::empty(stage), at.round ^ 1);
      mbarrier::arrive_expecting(full, offset < 0 ? 0 : S::l.stage_bytes);
      if (offset >= 0) {
        bulk_load(shared_base() + S::l.ring_at + stage * S::l.stage_bytes,
                  static_cast<const char*>(p.weights) + i64{first_block} * S::l.units * S::l.tile_bytes + offset,
                  S::l.stage_bytes, full);
      }
      at.advance();
    }
  }
  // Where the half's i-th tile lies in the layer, in bytes: K or V, one for each warpgroup, and Q, of its heads'
  // features; the output projection's, whose sum runs over these, and one without weights, so that all of it are whole
  // blocks; its hidden units' first products, and the second ones.
  __device__ __forceinline__ int half_tile(int i) const {
    constexpr int kUnits = S::l.units, kOutput = S::l.output_block * kUnits, kFirst = S::l.own_chunks * kUnits;
    const int of = static_cast<int>(half<S>());
    int tile = 0, part = group;
    if (i < kOutput) {
      tile = (i < kUnits ? group : 2) * kUnits + i % kUnits, part = of;
    } else if (i == kOutput) {
      tile = 3 * kUnits + of;
    } else if (i == kOutput + 1) {
      return -1;
    } else {
      const int second = i >= kOutput + kUnits + kFirst, place = i - kOutput - kUnits - second * kFirst;
      tile = (4 + 2 * (of * S::l.own_chunks + place / kUnits) + second) * kUnits + place % kUnits;
    }
    return tile * S::l.tile_bytes + part * S::l.stage_bytes;
  }

  // Where the block that is read at some place of a layer was packed: the next hidden units' first product comes before
  // the present ones' second, so that activations are computed under a product; or those of all units do.
  static __device__ __forceinline__ int packed(int block) {
    if (block < 5 || block == kBlocks - 1) return block;
    if constexpr (S::l.whole_hidden) return block < 4 + S::l.chunks ? 2 * block - 4 : 2 * (block - S::l.chunks) - 3;
    return block % 2 != 0 ? block + 1 : block - 1;
  }

  // One of the feed-forward block's, to as many stages as it has tiles: a round of all of them. Nobody may read what
  // lies there: neither this CTA's attention nor the copies to the others.
  __device__ __forceinline__ void load_wide(const Call& p, int block, int of_layer) {
    if (of_layer == 4) {
      mbarrier::wait(barriers::keys_read(), layer_parity);
      if (barriers::receivers() > 0) mbarrier::wait(barriers::keys_taken(), layer_parity);
    }
    const char* from =
        static_cast<const char*>(p.weights) + i64{block} * S::l.units * S::l.tile_bytes + group * S::l.stage_bytes;
#pragma unroll 1
    for (int i = 0; i < S::l.units; ++i, from += S::l.tile_bytes) {
      const bool more = i >= S::l.group_stages;
      const int stage = (more ? i - S::l.group_stages : i) * S::c.groups + group;
      const u32 full = more ? barriers::more_full(stage) : barriers::full(stage);
      mbarrier::wait(more ? barriers::more_empty(stage) : barriers::empty(stage), of_layer % 2 ^ 1);
      mbarrier::arrive_expecting(full, S::l.stage_bytes);
      bulk_load(shared_base() + (more ? S::l.more_at : S::l.ring_at) + stage * S::l.stage_bytes, from, S::l.stage_bytes,
                full);
    }
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

// K, or V, of this CTA's tokens to those that need it, each by a lane; to the last CTA first, which in a causal stack
// needs the most. `turn` of `turns`.
template <typename S>
__device__ __forceinline__ void send_to_others(u32 at, u32 barrier, u32 turn, u32 turns) {
  const u32 rank = token_rank<S>(), to = S::l.used - 1 - turn;
  if (turn >= turns || turn >= S::l.used || !gives_keys<S>(rank, to)) return;
  const u32 from = shared_base() + at + rank * S::l.rows * S::l.key_bytes;
  bulk_send(address_in(cta_of<S>(to), from), from, keys_of<S>(rank) * S::l.key_bytes,
            address_in(cta_of<S>(to), barrier));
}

// A warp that sends what the others have stored.
template <typename S>
__device__ __forceinline__ void send_keys(const Call& p) {
  using barriers = SplitBarriers<S>;
  if (barriers::receivers() == 0) return;
  const int clusters = static_cast<int>(gridDim.x) / S::c.cluster;
  u32 parity = 0;
  for (int sequence = block_anew() / S::c.cluster; sequence < p.batch; sequence += clusters) {
    for (int layer = 0; layer < p.layers; ++layer, parity ^= 1) {
      mbarrier::wait(barriers::keys_stored(), parity);
      send_to_others<S>(0, barriers::keys_ready(), threadIdx.x % 32, 32);
      mbarrier::wait(barriers::values_stored(), parity);
      send_to_others<S>(S::l.values_at, barriers::values_ready(), threadIdx.x % 32, 32);
    }
  }
}

// A warp's view of its warpgroup's stages. Tiles are numbered within a layer; where stages are not known from the
// number, only distances count.
template <typename S>
struct SplitConsumer {
  using barriers = SplitBarriers<S>;
  int place;           // among two rounds' stages; where these are known, the warpgroup
  bool ready = false;  // the next tile is known to be there

  __device__ __forceinline__ explicit SplitConsumer(int group) : place(group) {}

  // Where stages over K and V are used too, these follow the ring's, and a round is a block's tiles.
  __host__ __device__ static constexpr bool is_wide(int tile) {
    return S::l.more_stages > 0 && tile >= 4 * S::l.units && tile < S::l.group_tiles;
  }
  // The tile's stage is one of these.
  template <int kTile>
  static constexpr bool kMore = is_wide(kTile) && kTile % S::l.units >= S::l.group_stages;
  template <int kTile>
  static __device__ __forceinline__ u32 full(int stage) {
    return kMore<kTile> ? barriers::more_full(stage) : barriers::full(stage);
  }
  template <int kTile>
  static __device__ __forceinline__ u32 empty(int stage) {
    return kMore<kTile> ? barriers::more_empty(stage) : barriers::empty(stage);
  }
  template <int kTile>
  __device__ __forceinline__ void find(u32 layer_parity, int& stage, bool& odd) const {
    if constexpr (is_wide(kTile)) {
      stage = (kTile % S::l.units - (kMore<kTile> ? S::l.group_stages : 0)) * S::c.groups + place;
      odd = kTile / S::l.units % 2;
    } else if constexpr (S::l.known_stages) {
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
    if (!S::l.look_ahead || !ready) mbarrier::wait(full<kTile>(stage), odd);
    if constexpr (!S::l.known_stages) {
      place += S::c.groups;
      if (place >= 2 * S::l.stages) place -= 2 * S::l.stages;
    }
    return shared_base() + (kMore<kTile> ? S::l.more_at : S::l.ring_at) + stage * S::l.stage_bytes;
  }
  // Tile kTile has no weights: it is taken and released.
  template <int kTile>
  __device__ __forceinline__ void skip(u32 layer_parity) {
    bool odd;
    int stage;
    find<kTile>(layer_parity, stage, odd);
    if (threadIdx.x % 32 == 0) {
      mbarrier::wait(full<kTile>(stage), odd);
      mbarrier::arrive(empty<kTile>(stage));
    }
    if constexpr (!S::l.known_stages) {
      place += S::c.groups;
      if (place >= 2 * S::l.stages) place -= 2 * S::l.stages;
    }
    look<kTile + 1>(layer_parity);
  }
  // Asks for tile kTile, the next one, ahead: an answer takes 60 cycles even if it is yes.
  template <int kTile>
  __device__ __forceinline__ void look(u32 layer_parity) {
    if constexpr (S::l.look_ahead) {
      bool odd;
      int stage;
      find<kTile>(layer_parity, stage, odd);
      ready = mbarrier::is_done(full<kTile>(stage), odd);
    }
  }
  // Tile kTile has been read; kNext is the next one that will be asked for.
  template <int kTile, int kNext>
  __device__ __forceinline__ void release() const {
    int stage;
    if constexpr (is_wide(kTile)) {
      stage = (kTile % S::l.units - (kMore<kTile> ? S::l.group_stages : 0)) * S::c.groups + place;
    } else if constexpr (S::l.known_stages) {
      stage = kTile % S::l.group_stages * S::c.groups + place;
    } else {
      stage = place - (kNext - kTile) * S::c.groups;
      if (stage >= S::l.stages) stage -= S::l.stages;
      if (stage < 0) stage += S::l.stages;
    }
    if (threadIdx.x % 32 == 0) mbarrier::arrive(empty<kTile>(stage));
  }
};

}  // namespace gnomon::kernels::resident
