// A CTA of the split form: its place in the cluster, its barrier, the layer's vectors, and products of the streamed
// weights with operands in shared memory. A warpgroup computes 64 outputs for all tokens of the CTA.
#pragma once

#include "resident_split_stream.cuh"
#include "resident_tile.cuh"

namespace gnomon::kernels::resident {

template <typename S>
struct SplitProducts {
  static constexpr int kValues = S::l.rows / 2;  // a thread's two features of each token
  static constexpr int kPacked = kValues / 2;

  const Call& p;
  SplitConsumer<S> weights;
  u32 progress = 0;  // twice the layer that is at work, and the parity of all layers done

  __device__ __forceinline__ SplitProducts(const Call& call, int group) : p(call), weights(group) {}

  __device__ __forceinline__ u32 parity() const { return progress & 1; }

  static __device__ __forceinline__ int warp() { return split_thread<S>() / 32; }  // of the CTA, 16 features each
  static __device__ __forceinline__ u32 rank() {                                   // among the sequence's CTAs
    return S::l.registers < 128 ? cluster_rank_anew() : cluster_rank();
  }
  static __device__ __forceinline__ int first_token() { return static_cast<int>(rank()) * S::l.rows; }

  // All warps but the producer's.
  static __device__ __forceinline__ void meet() { named_barrier(1, 128 * S::c.groups); }
  static __device__ __forceinline__ void publish() {
    publish_shared_writes();
    meet();
  }

  // --- the layer's vectors: the thread's two features, from device memory well before they are used

  __device__ __forceinline__ float2 doubled(int at) const {
    const int t = split_thread<S>();
    const float* v = p.vectors + i64{progress / 2} * S::l.layer_floats + at + t / 32 * 32 + t % 32 / 8 * 4 + t % 8 / 4;
    return {v[0], v[16]};
  }
  __device__ __forceinline__ float2 single(int at) const {
    const int t = split_thread<S>();
    const float* v = p.vectors + i64{progress / 2} * S::l.layer_floats + at + t / 32 * 16 + t % 32 / 8 * 4 + t % 8 / 4;
    return {v[0], v[2]};
  }

  // --- products

  static __device__ __forceinline__ u32 tokens_operand() { return shared_base() + S::l.operand_at; }
  static __device__ __forceinline__ u32 hidden_operand(int chunk) {
    return shared_base() + S::l.hidden_at + chunk % 2 * S::l.operand_bytes;
  }

  // D = W * operand, or D += . Of the parts of the sum one is always on its way: the last when this returns, and
  // kAfterAnother says so of the product before. `beside(i)` is done under part i, when all before it are there.
  template <bool kFresh, bool kAfterAnother, typename Beside>
  __device__ __forceinline__ void multiply(float (&d)[kValues], u32 from, Beside&& beside) {
    const u64 tokens = operand<128>(anew(from));
    wgmma::settle(d);
#pragma unroll
    for (int unit = 0; unit < S::l.units; ++unit) {
      const u64 tile = operand<128>(weights.next()), part = further(tokens, unit * (S::l.rows * 128));
      wgmma::begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (kFresh && unit == 0 && k == 0) {
          wgmma::multiply_shared<false>(d, tile, part);
        } else {
          wgmma::multiply_shared<true>(d, further(tile, k * 32), further(part, k * 32));
        }
      }
      wgmma::commit();
      if (kAfterAnother || unit > 0) {
        wgmma::wait<1>();
        weights.template release<2>();
      }
      beside(unit);
    }
  }
  template <bool kFresh>
  __device__ __forceinline__ void multiply(float (&d)[kValues], u32 from) {
    multiply<kFresh, false>(d, from, [](int) {});
  }

  __device__ __forceinline__ void finish(float (&d)[kValues]) {
    wgmma::wait<0>();
    weights.template release<1>();
    wgmma::settle(d);
  }

  // This warp's 16 features of all tokens to an operand.
  __device__ __forceinline__ void store_operand(const u32* a, u32 at) const {
    const u32 t = split_thread<S>(), row = t % 32 / 16 * 8 + t % 8, chunk = t % 128 / 32 * 2 + t / 8 % 2;
    at += t / 128 * (S::l.rows * 128) + row * 128 + (chunk ^ t % 8) * 16;
#pragma unroll
    for (int i = 0; i < kPacked / 4; ++i) store_matrices_transposed(at + 16 * i * 128, a + 4 * i);
  }
};

}  // namespace gnomon::kernels::resident
