// The wide form's attention: a warpgroup takes a head at a time, tiles of 64 queries against all keys.
#pragma once

#include "resident_wide_products.cuh"

namespace gnomon::kernels::resident {

template <typename S>
struct WideAttention : WideProducts<S> {
  using Products = WideProducts<S>;
  using Products::d, Products::doubled, Products::exchange_panel, Products::finish, Products::finish_multiply,
      Products::group, Products::kPacked, Products::kPanel, Products::kValues, Products::lane, Products::meet_group,
      Products::multiply, Products::rank, Products::store_panel, Products::warp;
  using barriers = WideBarriers<S>;
  static constexpr int kTiles = (S::l.rows + 63) / 64;  // of queries
  static constexpr int kEarlyKeys = S::c.causal ? 64 : S::l.rows;

  __device__ __forceinline__ WideAttention(const Call& call, int of) : Products(call, of) {}

  // A panel's tiles as left operands of products; behind the last token it once more.
  __device__ __forceinline__ void load_queries(u32 (&q)[kTiles][16], u32 at) const {
    const u32 t = this->thread() % 128, in_tile = t / 32 * 16 + t % 16;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const u32 row = min(64 * tile + in_tile, S::l.rows - 1u);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        u32 a[4];
        load_matrices(a, at + row * 128 + ((2 * i + t % 32 / 16) ^ row % 8) * 16);
#pragma unroll
        for (int k = 0; k < 4; ++k) q[tile][4 * i + k] = a[k];
      }
    }
  }

  // V without what nobody sees, whatever it holds: 0 * NaN would add something.
  __device__ __forceinline__ void hide(u32* a) const {
#pragma unroll
    for (int i = 0; i < kPacked; i += 2) {
      if (!S::c.masked && 4 * i + 8 <= S::c.seq) continue;
      const int token = 4 * i + lane() % 4 * 2;
      u32 bits = (token < S::c.seq ? 1 : 0) | (token + 1 < S::c.seq ? 2 : 0);
      if constexpr (S::c.masked) bits = load_shared(shared_base() + S::l.masks_at + token / 32 * 4) >> token % 32;
      const u32 keep = (bits & 1 ? 0xffffu : 0) | (bits & 2 ? 0xffff0000u : 0);
      a[i] &= keep, a[i + 1] &= keep;
    }
  }

  __device__ __forceinline__ VisibleKeys<S::c.masked> visible(int tile) const {
    VisibleKeys<S::c.masked> v;
    const int first = lane() % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 64 * tile + 16 * warp() + lane() / 4 + 8 * r;
      v.last[r] = (S::c.causal ? min(row, S::c.seq - 1) : S::c.seq - 1) - first;
    }
    if constexpr (S::c.masked) {
#pragma unroll
      for (int w = 0; w < 4; ++w) v.valid[w] = load_shared(shared_base() + S::l.masks_at + 4 * w) >> first;
    }
    return v;
  }

  // softmax without its division, packed. The largest score is always taken off: to try it without would keep the
  // scores in registers beside the weights.
  template <int kSize>
  __device__ __forceinline__ void weights_of(u32 (&weights)[kSize / 2], float (&s)[kSize], float (&inverse)[2],
                                             int tile) const {
    const VisibleKeys<S::c.masked> seen = visible(tile);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      const bool may_be_late = S::c.causal ? i / 4 >= 8 * tile : i / 4 >= S::c.seq / 8;
      if (!seen.holds(i % 4 / 2, i / 4 * 8 + i % 2, may_be_late)) s[i] = __int_as_float(0xff800000);
    }
    float sum[2];
    shifted_exponentials(s, sum);
#pragma unroll
    for (int r = 0; r < 2; ++r) inverse[r] = sum[r] == 0 ? 0.0f : __fdividef(1.0f, sum[r]);
#pragma unroll
    for (int i = 0; i < kSize / 2; ++i) weights[i] = pack2<f16>(s[2 * i], s[2 * i + 1]);
  }

  // o = softmax(queries * K) * V, without the softmax's division.
  template <int kSize>
  __device__ __forceinline__ void attend_tile(float (&o)[32], float (&inverse)[2], const u32 (&q)[16], int tile) const {
    constexpr int kWeights = kSize / 2, kSteps = kSize / 8;  // of 16 keys
    float s[kSize];
    u32 weights[kWeights];
    const u64 keys = operand<128>(anew(exchange_panel(group)));
    wgmma::settle(s);
    wgmma::begin();
    wgmma::multiply<false, false>(s, q, keys);
#pragma unroll
    for (int i = 1; i < 4; ++i) wgmma::multiply<true, false>(s, q + 4 * i, further(keys, 32 * i));
    wgmma::commit();
    wgmma::wait<0>();
    wgmma::settle(s);
    weights_of(weights, s, inverse, tile);
    const u64 values = operand<128>(anew(exchange_panel(2 + group)));
    // The last eight keys with the eight before them, which have no weight there.
    u32 last[4] = {0, 0, weights[kWeights - 2], weights[kWeights - 1]};
    wgmma::settle(o);
    wgmma::settle<kWeights>(weights);
    wgmma::settle<4>(last);
    wgmma::begin();
    wgmma::multiply<false, true>(o, weights, values);
#pragma unroll
    for (int i = 1; i < kSteps; ++i) wgmma::multiply<true, true>(o, weights + 4 * i, further(values, 16 * 128 * i));
    if constexpr (kSize % 8 != 0) wgmma::multiply<true, true>(o, last, further(values, (2 * kSize - 16) * 128));
    wgmma::commit();
    wgmma::wait<0>();
    wgmma::settle(o);
  }

  static __device__ __forceinline__ void pack_output(u32 (&a)[16], const float (&o)[32], const float (&inverse)[2]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) a[i] = pack2<f16>(o[2 * i] * inverse[i % 2], o[2 * i + 1] * inverse[i % 2]);
  }

  // Over the head's keys.
  __device__ __forceinline__ void store_output(const u32 (&a)[16], int tile) const {
    const u32 t = this->thread() % 128, row = 64 * tile + t / 32 * 16 + t % 16;
    if (64 * tile + t / 32 * 16 >= S::l.rows) return;
    const u32 at = row < S::l.rows ? exchange_panel(group) + row * 128 : shared_base() + S::l.unread_at + row % 8 * 128;
#pragma unroll
    for (int i = 0; i < 4; ++i) store_matrices(at + ((2 * i + t % 32 / 16) ^ row % 8) * 16, a + 4 * i);
  }

  // Of a causal sequence's keys, the first tile of queries sees none of those that the second one's output lies over.
  __device__ __forceinline__ void attend(const u32 (&q)[kTiles][16]) const {
    float o[32], inverse[2];
    u32 late[16], early[16];
    if constexpr (kTiles > 1) {
      attend_tile<kValues>(o, inverse, q[1], 1);
      pack_output(late, o, inverse);
      if constexpr (S::c.causal) {
        meet_group();
        store_output(late, 1);
      }
    }
    attend_tile<kEarlyKeys / 2>(o, inverse, q[0], 0);
    pack_output(early, o, inverse);
    if (lane() == 0) mbarrier::arrive_remote(address_in(rank() ^ 1, barriers::values_free(group)));
    meet_group();  // all have read the keys
    if constexpr (kTiles > 1 && !S::c.causal) store_output(late, 1);
    store_output(early, 0);
  }

  // Queries of the round's head, packed: they may have to wait for the place where they lie before they are loaded.
  template <typename Beside>
  __device__ __forceinline__ void make_queries(u32 (&a)[kPacked], int round, Beside&& beside) {
    const float2 bias = doubled(S::l.bias_q, first_of_head(round));
    multiply(beside);
    finish_multiply();
    add_to_tokens(d, bias);
    pack_rows(a, d);
  }
  __device__ __forceinline__ int first_of_head(int round) const {
    return 64 * (rank() * S::l.panels + 2 * round + group);
  }

  // The heads of a round, one of each warpgroup of the cluster, whose outputs are exchanged.
  __device__ __forceinline__ void attend_to_heads(u32 (&a)[kPacked], int round) {
    u32 q[kTiles][16];
    store_panel(a, exchange_panel(2 + group));
    meet_group();
    load_queries(q, exchange_panel(2 + group));
    multiply();
    finish_multiply();
    pack_rows(a, d);  // K without its bias, to which softmax is blind
    store_panel(a, exchange_panel(group));
    const float2 bias = doubled(S::l.bias_v, first_of_head(round));
    multiply();
    finish_multiply();
    add_to_tokens(d, bias);
    pack_rows(a, d);
    hide(a);
    meet_group();  // all have loaded their queries
    store_panel(a, exchange_panel(2 + group));
    publish_shared_writes();
    meet_group();
    attend(q);
    publish_shared_writes();
    meet_group();
    if (this->elected()) {
      mbarrier::wait(barriers::values_free(group), round);
      this->give_exchanged();
    }
  }
};

}  // namespace gnomon::kernels::resident
