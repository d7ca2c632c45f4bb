// The attention block of a warpgroup: its 64 queries against all keys that they may see, head by head, and the output
// projection.
#pragma once

#include "resident_keys.cuh"

namespace gnomon::kernels::resident {

template <typename S>
struct GroupAttention : GroupKeys<S> {
  using Base = GroupKeys<S>;
  using Base::kOperand, Base::group_barrier, Base::in_keys, Base::in_queries, Base::kv, Base::multiply_outputs,
      Base::queries, Base::release_block, Base::tile, Base::token, Base::visible_keys, Base::x, Base::project,
      Base::publish_queries, Base::release_keys, Base::store_queries, Base::wait_for_keys;

  __device__ __forceinline__ explicit GroupAttention(int group) : Base(group) {}

  // Panels of heads wider than a panel adjoin, so that one step from head to head serves all.
  static constexpr u32 kQueryHead = 64 * 2 * S::l.head, kKeyHead = S::l.keys * 2 * S::l.head;

  template <int kKeys>
  __device__ __forceinline__ void score(float (&s)[kKeys / 2], int head) const {
    const u64 q = further(operand<S::l.panel_row_bytes>(queries()), head * kQueryHead);
    const u64 k = further(operand<S::l.panel_row_bytes>(kv()), head * kKeyHead);
    wgmma::begin();
    wgmma::multiply_shared<false>(s, q, k);
#pragma unroll
    for (int feature = 16; feature < S::l.head; feature += 16) {
      wgmma::multiply_shared<true>(s, further(q, in_queries(feature)), further(k, in_keys(feature)));
    }
    wgmma::commit();
  }

  // The same with Q from registers.
  template <int kKeys>
  __device__ __forceinline__ void score_plainly(float (&s)[kKeys / 2], const u32 (&q)[kOperand], int head) const {
    const u64 k = further(operand<S::l.panel_row_bytes>(kv()), head * kKeyHead);
    const u32* of_head = q + head * (S::l.head / 4);
    wgmma::begin();
    wgmma::multiply<false, false>(s, of_head, k);
#pragma unroll
    for (int feature = 16; feature < S::l.head; feature += 16) {
      wgmma::multiply<true, false>(s, of_head + feature / 4, further(k, in_keys(feature)));
    }
    wgmma::commit();
  }

  // With a column of ones after the head's features, for the sums, or without.
  template <int kKeys, int kColumns>
  __device__ __forceinline__ void weigh(float (&o)[kColumns / 2], const u32 (&p)[kKeys / 4], int head) const {
    const u32 values = S::l.panels * S::l.panel_bytes + head * kKeyHead;
    const u32 next = kColumns > S::l.head ? shared_base() + S::l.ones_at - (kv() + values) : S::l.panel_bytes;
    const u64 v = further(operand<S::l.panel_row_bytes>(kv(), next), values);
    wgmma::begin();
    wgmma::multiply<false, true>(o, p, v);
#pragma unroll
    for (int key = 16; key < kKeys; key += 16) {
      wgmma::multiply<true, true>(o, p + key / 4, further(v, key * S::l.panel_row_bytes));
    }
    wgmma::commit();
  }

  // Each head's output replaces its queries. Where registers allow, the next head's scores are computed beside it.
  template <int kTile>
  __device__ __forceinline__ void attend() const {
    constexpr int kKeys = S::l.keys_seen[kTile];
    constexpr bool kAhead = !S::l.summed && kKeys / 2 + kKeys / 4 + S::l.head / 2 + S::c.model / 2 <= 168;
    const auto late = [](int block) { return 8 * block + 8 > S::c.seq || (S::c.causal && 8 * block + 7 > 64 * kTile); };
    const VisibleKeys<S::c.masked> visible = visible_keys();
    float s[kKeys / 2];
    score<kKeys>(s, 0);
    wgmma::wait<0>();
#pragma unroll 1
    for (int head = 0; head < S::c.heads; ++head) {
      const int next =
          head + 1 < S::c.heads ? head + 1 : 0;  // the last scores are for nothing: no branch among products
      wgmma::settle(s);
      float inverse[2];
      u32 p[kKeys / 4];
      softmax_rows(p, s, visible, inverse, late);
      float o[S::l.head / 2];
      weigh<kKeys, S::l.head>(o, p, head);
      if constexpr (kAhead) {
        score<kKeys>(s, next);
        wgmma::wait<1>();
      } else {
        wgmma::wait<0>();
      }
      wgmma::settle(o);
      scale_rows(o, inverse);
      u32 outputs[S::l.head / 4];
      pack_rows(outputs, o);
      store_queries(outputs, queries() + head * kQueryHead);
      if constexpr (!kAhead) score<kKeys>(s, next);
      wgmma::wait<0>();
    }
  }

  // The same for all heads of a causal stack at once, from registers into registers, by exponentials without a shift.
  // False where a row's sum shows that one was needed. Beside the second tile's scores there are too few registers for
  // the output of the head before.
  template <int kTile>
  __device__ __forceinline__ bool attend_plainly(u32 (&outputs)[kOperand], const u32 (&q)[kOperand]) const {
    constexpr bool kAhead = kTile == 0;
    constexpr int kKeys = S::l.keys_seen[kTile], kHead = S::l.head;
    constexpr int kMasks = (kKeys - 64 * kTile) / 8;
    u32 seen[kMasks] = {};
    const int last = token(0) - threadIdx.x % 4 * 2;  // rows that don't exist see what doesn't either
#pragma unroll
    for (int i = 0; i < kMasks; ++i) {
      const int key = 64 * kTile + 8 * i;
      seen[i] = anew((key <= last ? 0xffffu : 0u) | (key + 1 <= last ? 0xffff0000u : 0u));
    }
    bool lost = false;
    float s[kKeys / 2];
    score_plainly<kKeys>(s, q, 0);
    wgmma::wait<0>();
#pragma unroll
    for (int head = 0; head < S::c.heads; ++head) {
      wgmma::settle(s);
      u32 p[kKeys / 4];
      plain_exponentials(p, s, seen);
      float o[kHead / 2 + 4];
      weigh<kKeys, kHead + 8>(o, p, head);
      if (kAhead && head + 1 < S::c.heads) {
        score_plainly<kKeys>(s, q, head + 1);
        wgmma::wait<1>();
      } else {
        wgmma::wait<0>();
      }
      wgmma::settle(o);
      float inverse[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float sum = o[kHead / 2 + 2 * r];
        lost |= !(sum >= kLeastSum && sum <= kMostSum);
        inverse[r] = __fdividef(1.0f, sum);
      }
#pragma unroll
      for (int i = 0; i < kHead / 2; i += 2) {
        const float scale = inverse[i % 4 / 2];
        outputs[(head * kHead / 2 + i) / 2] = pack2<f16>(o[i] * scale, o[i + 1] * scale);
      }
      if (!kAhead && head + 1 < S::c.heads) score_plainly<kKeys>(s, q, head + 1);
      wgmma::wait<0>();
    }
    wgmma::settle<kOperand>(outputs);
    return !lost;
  }

  template <int kTile>
  __device__ __forceinline__ void attend_and_project(const u32 (&q)[kOperand]) {
    if constexpr (S::l.summed) {
      u32 outputs[kOperand];
      const bool right = attend_plainly<kTile>(outputs, q);
      if (!named_barrier_any(group_barrier(), 128, !right)) {
        release_keys();
        this->template multiply<true>(x, outputs, 3);
        wgmma::wait<0>();
        wgmma::settle(x);
        return;
      }
    }
    publish_queries();
    attend<kTile>();
    release_keys();
    publish_queries();
    multiply_outputs(x);
    wgmma::wait<0>();
    wgmma::settle(x);
  }

  // x += Wo * attention + bo
  __device__ __forceinline__ void attention_block(const u32 (&a)[kOperand], u32 vectors) {
    u32 q[kOperand];
    project(q, a, vectors);
    wait_for_keys();
    if constexpr (S::l.tiles == 1) {
      attend_and_project<0>(q);
    } else if (tile == 0) {
      attend_and_project<0>(q);
    } else {
      attend_and_project<1>(q);
    }
    release_block();
  }
};

}  // namespace gnomon::kernels::resident
