// The split form's K and V: every CTA that needs a token's has them in its own shared memory.
#pragma once

#include "resident_split_products.cuh"

namespace gnomon::kernels::resident {

template <typename S>
struct SplitKeys : SplitProducts<S> {
  using Products = SplitProducts<S>;
  using Products::first_token, Products::kPacked, Products::publish, Products::rank;
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
    const u32 t = split_thread<S>(), row = t % 32 / 16 * 8 + t % 8, chunk = t / 32 * 2 + t / 8 % 2;
    at += shared_base() + (first_token() + row) * S::l.row_bytes + (chunk ^ t % 8) * 16;
#pragma unroll
    for (int i = 0; i < kPacked / 4; ++i) {
      if (first_token() + 16 * i >= S::l.keys) break;
      store_matrices_transposed(at + 16 * i * S::l.row_bytes, a + 4 * i);
    }
  }

  __device__ __forceinline__ void expect_keys() const {
    if constexpr (S::l.used == 1) return;
    if (threadIdx.x != 0) return;
    int keys = 0;
    for (u32 other = 0; other < S::l.used; ++other) keys += gives_keys<S>(other, rank()) ? keys_of<S>(other) : 0;
    mbarrier::arrive_expecting(barriers::keys_ready(), keys * S::l.row_bytes);
    mbarrier::arrive_expecting(barriers::values_ready(), keys * S::l.row_bytes);
  }

  // What the CTA's warps have stored of K or V, at `at`, to the others.
  __device__ __forceinline__ void send_keys(u32 at, u32 barrier) const {
    publish();
    if constexpr (S::l.used == 1) return;
    if (threadIdx.x < S::l.used && gives_keys<S>(rank(), threadIdx.x)) {
      const u32 from = shared_base() + at + first_token() * S::l.row_bytes;
      bulk_send(address_in(threadIdx.x, from), from, keys_of<S>(rank()) * S::l.row_bytes,
                address_in(threadIdx.x, barrier));
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
        mbarrier::arrive_remote(address_in(threadIdx.x, barrier));
      }
    }
  }
};

}  // namespace gnomon::kernels::resident
