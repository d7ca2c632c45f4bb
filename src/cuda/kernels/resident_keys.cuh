// Q, K and V of a warpgroup's tokens: projected, stored in shared memory in panels of as many features as a swizzled
// row holds, and told to those who read them, in other CTAs too.
#pragma once

#include "resident_group.cuh"

namespace gnomon::kernels::resident {

template <typename S>
struct GroupKeys : GroupBase<S> {
  using Base = GroupBase<S>;
  using Base::kOperand, Base::kRow, Base::first_slot, Base::group_barrier, Base::in_keys, Base::in_queries, Base::kv,
      Base::queries, Base::release_block, Base::row_valid, Base::stream, Base::tile, Base::warp, Base::x;
  using typename Base::barriers;

  __device__ __forceinline__ explicit GroupKeys(int group) : Base(group) {}

  __device__ __forceinline__ u32 owner_barrier(int key_tile) const {
    const int slot = first_slot() + key_tile;
    return address_in(slot / S::c.groups, barriers::keys_free(slot % S::c.groups));
  }

  __device__ __forceinline__ u32 ready_barrier(int key_tile) const {
    return barriers::keys_ready(S::c.groups < S::l.tiles ? key_tile : first_slot() % S::c.groups + key_tile);
  }

  // Sixteen features of this warp's 16 rows to a panel: `at` is the address of the warp's first row at the first
  // feature.
  __device__ __forceinline__ void store_features(const u32* a, u32 at) const {
    const u32 row = threadIdx.x % 16 * S::l.panel_row_bytes;
    store_matrices(at + row + threadIdx.x % 32 / 16 * 16 ^ (swizzle<S::l.panel_row_bytes>(row) ^ row), a);
  }

  // K, or V: panels that begin at `first`.
  __device__ __forceinline__ void store_keys(u32 (&a)[kOperand], u32 first) const {
    if constexpr (S::c.masked) {  // a key that nobody sees adds nothing, whatever it holds: 0 * NaN would
      const bool valid[2] = {row_valid(0), row_valid(1)};
#pragma unroll
      for (int i = 0; i < kOperand; ++i) a[i] = valid[i % 2] ? a[i] : 0;
    }
    if (64 * tile + 16 * warp >= S::l.keys) return;
#pragma unroll
    for (int g = 0; g < S::c.model / 16; ++g) {
      store_features(a + 4 * g, first + in_keys(16 * g) + (64 * tile + 16 * warp) * S::l.panel_row_bytes);
    }
  }

  // kSize * 4 features, from `first` on, of Q or of the heads' outputs.
  template <int kSize>
  __device__ __forceinline__ void store_queries(const u32 (&a)[kSize], u32 first) const {
#pragma unroll
    for (int g = 0; g < kSize / 4; ++g) {
      store_features(a + 4 * g, first + in_queries(16 * g) + 16 * warp * S::l.panel_row_bytes);
    }
  }

  // What the group's warps stored, its products may read.
  __device__ __forceinline__ void publish_queries() const {
    publish_shared_writes();
    named_barrier(group_barrier(), 128);
  }
  // The sequence's other warpgroups may read this tile's keys; those in other CTAs get a copy.
  __device__ __forceinline__ void publish_keys() {
    publish_shared_writes();
    if constexpr (S::c.groups >= S::l.tiles) {
      __syncwarp();
      if (threadIdx.x % 32 == 0) mbarrier::arrive(ready_barrier(tile));
    } else {
      named_barrier(1, 128);
      if (threadIdx.x % 32 == 0) mbarrier::arrive(ready_barrier(tile));
      const int other = 1 - tile;
      if (threadIdx.x == 0 && (!S::c.causal || other > tile)) {
        const u32 rank = first_slot() + other, at = kv() + 64 * tile * S::l.panel_row_bytes;
        const u32 bytes = keys_of(tile) * S::l.panel_row_bytes, barrier = address_in(rank, ready_barrier(tile));
        for (int panel = 0; panel < 2 * S::l.panels; ++panel) {
          const u32 from = at + panel * S::l.panel_bytes;
          bulk_send(address_in(rank, from), from, bytes, barrier);
        }
      }
    }
  }

  static __device__ __forceinline__ int keys_of(int key_tile) {
    constexpr int kFirst = S::l.tile_keys[0], kSecond = S::l.tile_keys[1];
    return key_tile == 0 ? kFirst : kSecond;
  }

  __device__ __forceinline__ void expect_keys() {
    if constexpr (S::c.groups < S::l.tiles) {
      const int other = 1 - tile;
      if (threadIdx.x == 0 && (!S::c.causal || other < tile)) {
        mbarrier::arrive_expecting(ready_barrier(other), 2 * S::l.panels * keys_of(other) * S::l.panel_row_bytes);
      }
    }
  }

  __device__ __forceinline__ void wait_for_keys() {
#pragma unroll
    for (int t = 0; t < S::l.tiles; ++t) {
      if (!S::c.causal || t <= tile) mbarrier::wait(ready_barrier(t), stream.parity());
    }
  }

  __device__ __forceinline__ void release_keys() {
    if (threadIdx.x % 32 == 0) {
      for (int t = 0; t < S::l.tiles; ++t) {
        if (!S::c.causal || t <= tile) mbarrier::arrive_remote(owner_barrier(t));
      }
    }
  }

  // What a product gave, packed, with biases if it has them: these come in halves, since a mask takes registers.
  template <bool kBiased>
  __device__ __forceinline__ void finish(u32 (&features)[kOperand], float (&d)[kRow], u32 biases) {
    float bias[kRow / 4];
    if constexpr (kBiased) load_vector(bias, biases);
    wgmma::wait<0>();
    wgmma::settle(d);
    release_block();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first = half * kRow / 2;
      if constexpr (kBiased) {
        if (half == 1) load_vector(bias, biases + 8 * kRow);
#pragma unroll
        for (int i = 0; i < kRow / 2; ++i) d[first + i] += bias[i / 4 * 2 + i % 2];
      }
#pragma unroll
      for (int i = first / 2; i < first / 2 + kRow / 4; ++i) features[i] = pack2<f16>(d[2 * i], d[2 * i + 1]);
    }
    wgmma::settle<kOperand>(features);
  }

  // K, V and Q to shared memory, each under the next one's product where registers suffice; Q stays in `features` too.
  // A bias of K adds the same to all scores of a row: softmax does not see it, and it is left out where its memory is
  // wanted.
  __device__ __forceinline__ void project(u32 (&features)[kOperand], const u32 (&a)[kOperand], u32 vectors) {
    constexpr bool kKeysUnder = !S::c.masked, kValuesUnder = kKeysUnder && S::c.groups == 2;
    float d[kRow];
    expect_keys();
    add_to_rows(x, vectors + 4 * S::l.bias_o);
    this->template multiply<false>(d, a, 0);
    finish<!S::l.summed>(features, d, vectors + 4 * S::l.bias_k);
    if constexpr (kKeysUnder) this->template multiply<false>(d, a, 1);
    mbarrier::wait(barriers::keys_free((first_slot() + tile) % S::c.groups), stream.parity() ^ 1);
    store_keys(features, kv());
    if constexpr (!kKeysUnder) this->template multiply<false>(d, a, 1);
    finish<true>(features, d, vectors + 4 * S::l.bias_v);
    if constexpr (kValuesUnder) this->template multiply<false>(d, a, 2);
    store_keys(features, kv() + S::l.panels * S::l.panel_bytes);
    if constexpr (!kValuesUnder) this->template multiply<false>(d, a, 2);
    publish_keys();
    finish<true>(features, d, vectors + 4 * S::l.bias_q);
    store_queries(features, queries());
  }
};

}  // namespace gnomon::kernels::resident
