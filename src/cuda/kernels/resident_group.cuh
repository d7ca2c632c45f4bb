// A warpgroup of the resident stack: its place in the cluster and in its sequence, its 64 tokens' residual stream, its
// products with the streamed weights, and the mask of its sequence.
#pragma once

#include "resident_stream.cuh"
#include "resident_tile.cuh"
#include "vec.cuh"

namespace gnomon::kernels::resident {

// One warpgroup's 64 tokens and what it shares with the sequence's other warpgroups.
template <typename S>
struct GroupBase {
  static constexpr int kRow = S::c.model / 2;      // floats of the thread's two rows
  static constexpr int kOperand = S::c.model / 4;  // registers of the same as an A operand

  using barriers = Barriers<S>;

  Consumer<S> stream;
  int tile;  // of the sequence
  int warp;  // of the group
  int slot;  // in the cluster: of all its warpgroups

  __device__ __forceinline__ explicit GroupBase(int group) {
    slot = static_cast<int>(cluster_rank()) * S::c.groups + group;
    tile = slot % S::l.tiles;
    warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x % 128 / 32), 0);
  }

  __device__ __forceinline__ int token(int row) const {
    const int t = thread_anew() % 128;
    return 64 * tile + t / 32 * 16 + t % 32 / 4 + 8 * row;
  }
  // Of the thread's value x[i], counted from its first one.
  static __device__ __forceinline__ int column(int i) { return i / 4 * 8 + i % 2; }
  static __device__ __forceinline__ int first_column() { return thread_anew() % 4 * 2; }

  // Its own barrier, of its 128 threads.
  __device__ __forceinline__ u32 group_barrier() const { return 1 + (first_slot() + tile) % S::c.groups; }

  // Q of this tile, then the heads' outputs.
  __device__ __forceinline__ u32 queries() const {
    constexpr u32 kAt = S::l.queries_at;
    if constexpr (S::c.groups == 1) return shared_base() + kAt;
    return shared_base() + kAt + thread_anew() / 128 * S::l.queries_bytes;
  }

  // The sequence's first warpgroup in the cluster, and its K and V: constants where there is one sequence.
  __device__ __forceinline__ int first_slot() const {
    if constexpr (S::c.cluster * S::c.groups == S::l.tiles) return 0;
    return slot - tile;
  }
  __device__ __forceinline__ u32 kv() const {
    if constexpr (S::l.local_sequences == 1) return shared_base();
    return shared_base() + slot % S::c.groups / S::l.tiles * (2 * S::l.panels * S::l.panel_bytes);
  }

  float x[kRow];

  // Where a feature begins in a row of panels.
  __host__ __device__ static constexpr u32 in_keys(int feature) {
    return feature / S::l.panel_features * S::l.panel_bytes + feature % S::l.panel_features * 2;
  }
  __host__ __device__ static constexpr u32 in_queries(int feature) {
    return feature / S::l.panel_features * (64 * S::l.panel_row_bytes) + feature % S::l.panel_features * 2;
  }

  // --- products with the streamed weights: a block of [model][model], in tiles of [model][64]

  // D += A * W^T
  template <bool kAccumulate>
  __device__ __forceinline__ void multiply(float (&d)[kRow], const u32 (&a)[kOperand], int block) {
    if constexpr (kAccumulate) wgmma::settle(d);
#pragma unroll
    for (int unit = 0; unit < S::l.units; ++unit) {
      const u64 weights = stream.next_tile(block * S::l.units + unit);
      wgmma::begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (!kAccumulate && unit == 0 && k == 0) {
          wgmma::multiply<false, false, true>(d, a, weights);
        } else {
          wgmma::multiply<true, false>(d, a + 16 * unit + 4 * k, further(weights, k * 32));
        }
      }
    }
    wgmma::commit();
  }

  // The same with the heads' outputs for A.
  __device__ __forceinline__ void multiply_outputs(float (&d)[kRow]) {
    const u64 outputs = operand<S::l.panel_row_bytes>(queries());
    wgmma::settle(d);
#pragma unroll
    for (int unit = 0; unit < S::l.units; ++unit) {
      const u64 weights = stream.next_tile(3 * S::l.units + unit);
      wgmma::begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        wgmma::multiply_shared<true>(d, further(outputs, in_queries(64 * unit + 16 * k)), further(weights, k * 32));
      }
    }
    wgmma::commit();
  }

  __device__ __forceinline__ void release_block() {
#pragma unroll
    for (int unit = 0; unit < S::l.units; ++unit) stream.release_tile();
  }

  // --- the mask

  // The mask waits in shared memory, for registers are short: a bit for each key, a copy for each warp.
  __device__ __forceinline__ u32 mask_words() const {
    return shared_base() + S::l.masks_at + (slot % S::c.groups * 4 + warp) * 16;
  }

  __device__ __forceinline__ void read_mask(const MaskBytes& mask, int sequence, bool real) const {
    const int lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int key = 32 * w + lane;
      const bool valid = real && key < S::c.seq && mask.data[sequence * mask.sequence + key * mask.token] != 0;
      const u32 word = __ballot_sync(kAllLanes, valid);
      if (lane == 0) store_shared(mask_words() + 4 * w, word);
    }
    __syncwarp();
  }

  __device__ __forceinline__ bool row_valid(int row) const {
    return load_shared(mask_words() + token(row) / 32 * 4) >> token(row) % 32 & 1;
  }

  // Which keys the rows see: all that exist or, in a causal stack, none after the row's own; and of these the valid
  // ones.
  __device__ __forceinline__ VisibleKeys<S::c.masked> visible_keys() const {
    VisibleKeys<S::c.masked> visible;
    const int first = threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      visible.last[r] = (S::c.causal && token(r) < S::c.seq ? token(r) : S::c.seq - 1) - first;
    }
    if constexpr (S::c.masked) {
#pragma unroll
      for (int w = 0; w < 4; ++w) visible.valid[w] = load_shared(mask_words() + 4 * w) >> first;
    }
    return visible;
  }
};

}  // namespace gnomon::kernels::resident
