// The split form's Q, K and V: every CTA that needs a token's K and V has them in its own shared memory.
#pragma once

#include "resident_split_products.cuh"
#include "resident_split_tokens.cuh"

namespace gnomon::kernels::resident {

template <typename S>
struct SplitKeys : SplitProducts<S> {
  using Products = SplitProducts<S>;
  using Products::doubled, Products::first_token, Products::kPacked, Products::kValues, Products::meet,
      Products::meet_for_heads, Products::parity, Products::queries_operand, Products::rank, Products::store_operand,
      Products::tokens_operand, Products::warp;
  using typename Products::Vectors;
  using barriers = SplitBarriers<S>;

  __device__ __forceinline__ SplitKeys(const Call& call, int group) : Products(call, group) {}

  __device__ __forceinline__ bool is_valid(int token) const {
    if constexpr (!S::c.masked) return token < S::c.seq;
    return load_shared(shared_base() + S::l.masks_at + token / 32 * 4) >> token % 32 & 1;
  }

  // This warp's 16 features of all tokens to K or V. A key that nobody sees adds nothing, whatever it holds: 0 * NaN
  // would.
  __device__ __forceinline__ void store_keys(u32* a, u32 at) const {
    if constexpr (S::c.masked || S::c.seq % 16 != 0) {
#pragma unroll
      for (int i = 0; i < kPacked; i += 2) {
        const int token = first_token() + 4 * i + threadIdx.x % 4 * 2;
        const u32 keep = (is_valid(token) ? 0xffffu : 0) | (is_valid(token + 1) ? 0xffff0000u : 0);
        a[i] &= keep, a[i + 1] &= keep;
      }
    }
    const u32 t = split_thread<S>(), row = t % 32 / 16 * 8 + t % 8, chunk = t % 128 / 32 * 2 + t / 8 % 2;
    at += shared_base() + first_token() * S::l.key_bytes + (S::l.halves == 2 ? 0 : t / 128 * (16 * 128)) + row * 128 +
          (chunk ^ t % 8) * 16;
#pragma unroll
    for (int i = 0; i < kPacked / 4; ++i) {
      if (first_token() + 16 * i >= S::l.keys) break;
      store_matrices_transposed(at + 16 * i * S::l.key_bytes, a + 4 * i);
    }
  }

  __device__ __forceinline__ void expect_keys() const {
    if constexpr (S::l.used == 1) return;
    if (threadIdx.x != 0) return;
    int keys = 0;
    for (u32 other = 0; other < S::l.used; ++other) keys += gives_keys<S>(other, rank()) ? keys_of<S>(other) : 0;
    mbarrier::arrive_expecting(barriers::keys_ready(), keys * S::l.key_bytes);
    mbarrier::arrive_expecting(barriers::values_ready(), keys * S::l.key_bytes);
  }

  // What has been stored of K or V, at `at`, to the other CTAs: by the sender, who waits for `stored`, or else by all
  // warps, whose lanes would take turns. A CTA whose keys nobody needs says nothing: it could be layers ahead of its
  // sender, where a parity tells no more.
  __device__ __forceinline__ void send_keys(u32 at, u32 stored, u32 ready) const {
    if constexpr (S::l.used == 1) return;
    publish_shared_writes();
    if constexpr (S::l.sender) {
      __syncwarp();
      if (threadIdx.x % 32 == 0 && barriers::receivers() > 0) mbarrier::arrive(stored);
    } else {
      meet();
      constexpr u32 kWarps = 4 * S::c.groups;
      const u32 lane = split_thread<S>() % 32;
      send_to_others<S>(at, ready, warp() + lane * kWarps, lane < (S::l.used + kWarps - 1) / kWarps ? S::l.used : 0);
    }
  }

  __device__ __forceinline__ void wait_for_receivers(u32 barrier, u32 parity) const {
    if constexpr (S::l.used > 1) {
      if (barriers::receivers() > 0) mbarrier::wait(barrier, parity);
    }
  }
  // To those whose keys this CTA got.
  __device__ __forceinline__ void tell_senders(u32 barrier) const {
    if constexpr (S::l.used > 1) {
      if (threadIdx.x < S::l.used && gives_keys<S>(threadIdx.x, rank())) {
        mbarrier::arrive_remote(address_in(cta_of<S>(threadIdx.x), barrier));
      }
    }
  }

  // Of a pair: one warpgroup has K of the half's heads, the other V, and both have Q, which the first one stores.
  __device__ __forceinline__ void project_half() {
    float d[kValues], e[kValues];
    u32 a[kPacked];
    expect_keys();
    const bool values = split_thread<S>() >= 128;
    const float2 bias = Products::vectors.bias_k, bias_q = Products::vectors.bias_q;
    this->template multiply<true, 0, false>(d, tokens_operand());
    this->template multiply<true, 1, true>(e, tokens_operand(), [&](int part) {
      if (part > 0) return;
      wgmma::settle(d);
      add_to_tokens(d, bias);
      pack_rows(a, d);
      wait_for_receivers(barriers::keys_taken(), parity() ^ 1);
      store_keys(a, values ? S::l.values_at : 0);
      send_keys(0, values ? barriers::values_stored() : barriers::keys_stored(), barriers::keys_ready());
    });
    this->template finish<1>(e);
    add_to_tokens(e, bias_q);
    pack_rows(a, e);
    if (!values) store_operand(a, queries_operand());
    meet();
  }

  // K and V go out as soon as they are there, and travel under the products that follow; where there are registers for
  // two accumulators, under the next one they are packed and stored too.
  __device__ __forceinline__ void project() {
    if constexpr (S::l.halves == 2) return project_half();
    float d[kValues], e[S::l.two_accumulators() ? kValues : 1];
    u32 a[kPacked];
    const auto pack = [&](float(&of)[kValues], float2 bias) {
      add_to_tokens(of, bias);
      pack_rows(a, of);
    };
    const auto give_keys = [&](float(&of)[kValues], float2 bias) {
      pack(of, bias);
      wait_for_receivers(S::l.hidden_over_keys ? barriers::keys_free() : barriers::keys_taken(), parity() ^ 1);
      store_keys(a, 0);
      send_keys(0, barriers::keys_stored(), barriers::keys_ready());
    };
    const auto give_values = [&](float(&of)[kValues], float2 bias) {
      pack(of, bias);
      store_keys(a, S::l.values_at);
      send_keys(S::l.values_at, barriers::values_stored(), barriers::values_ready());
    };
    expect_keys();
    const float2 bias_k = doubled(S::l.bias_k, &Vectors::bias_k), bias_v = doubled(S::l.bias_v, &Vectors::bias_v),
                 bias_q = doubled(S::l.bias_q, &Vectors::bias_q);
    this->template multiply<true, 0, false>(d, tokens_operand());
    if constexpr (S::l.two_accumulators()) {
      this->template multiply<true, 1, true>(e, tokens_operand(), [&](int part) {
        if (part > 0) return;
        wgmma::settle(d);
        give_keys(d, bias_k);
      });
      this->template multiply<true, 2, true>(d, tokens_operand(), [&](int part) {
        if (part > 0) return;
        wgmma::settle(e);
        give_values(e, bias_v);
      });
    } else {
      this->template finish<0>(d);
      give_keys(d, bias_k);
      this->template multiply<true, 1, false>(d, tokens_operand());
      this->template finish<1>(d);
      give_values(d, bias_v);
      this->template multiply<true, 2, false>(d, tokens_operand());
    }
    this->template finish<2>(d);
    pack(d, bias_q);
    if constexpr (S::l.queries_at == S::l.operand_at) meet();  // all warpgroups have read the tokens
    store_operand(a, queries_operand());
    meet_for_heads();
  }
};

}  // namespace gnomon::kernels::resident
