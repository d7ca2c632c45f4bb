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
    return token_rank<S>();
  }
  static __device__ __forceinline__ int first_token() { return static_cast<int>(rank()) * S::l.rows; }

  // All warps but the producer's; and those that share a head's features.
  static __device__ __forceinline__ void meet() { named_barrier(1, 128 * S::c.groups); }
  static __device__ __forceinline__ void meet_for_heads() {
    if constexpr (S::l.attending > 4) {
      meet();
    } else {
      named_barrier(2 + split_thread<S>() / 128, 128);
    }
  }
  static __device__ __forceinline__ void publish() {
    publish_shared_writes();
    meet();
  }

  // --- the layer's vectors: the thread's two features, from device memory well before they are used

  __device__ __forceinline__ const float* layer_vectors(u32 layer) const {
    if constexpr (S::l.registers < 128) layer = anew(layer);  // nor is where they are kept
    return p.vectors + i64{layer} * S::l.layer_floats;
  }
  __device__ __forceinline__ float2 doubled(int at, u32 layer, bool of_half = false) const {  // of the half's heads
    int t = split_thread<S>();
    if (of_half) t = static_cast<int>(half<S>()) * 128 + t % 128;
    const float* v = layer_vectors(layer) + at + t / 32 * 32 + t % 32 / 8 * 4 + t % 8 / 4;
    return {v[0], v[16]};
  }
  __device__ __forceinline__ float2 single(int at, u32 layer) const {
    const int t = split_thread<S>();
    const float* v = layer_vectors(layer) + at + t / 32 * 16 + t % 32 / 8 * 4 + t % 8 / 4;
    return {v[0], v[2]};
  }

  // All of a layer's, and where they were loaded with it ahead, these; else those of the layer at work, now.
  struct Vectors {
    float2 bias_k, bias_v, bias_q, bias_o, bias_2, gain1, shift1, gain2, shift2;
    float2 bias_1[S::l.whole_hidden ? S::l.own_chunks : 1];
  };
  Vectors vectors;

  // Behind the last layer there is none: its own once more.
  __device__ __forceinline__ void load_vectors(u32 layer) {
    if constexpr (S::l.vectors_ahead) {
      layer = min(layer, static_cast<u32>(max(p.layers, 1)) - 1);
      if constexpr (S::l.halves == 2) {  // K or V: in bias_k
        vectors.bias_k = doubled(split_thread<S>() < 128 ? S::l.bias_k : S::l.bias_v, layer, true);
        vectors.bias_q = doubled(S::l.bias_q, layer, true);
      } else {
        vectors.bias_k = doubled(S::l.bias_k, layer), vectors.bias_v = doubled(S::l.bias_v, layer);
        vectors.bias_q = doubled(S::l.bias_q, layer);
      }
      vectors.bias_o = single(S::l.bias_o, layer);
      vectors.gain1 = single(S::l.gain1, layer), vectors.shift1 = single(S::l.shift1, layer);
      vectors.bias_2 = single(S::l.bias_2, layer);
      vectors.gain2 = single(S::l.gain2, layer), vectors.shift2 = single(S::l.shift2, layer);
#pragma unroll
      for (int i = 0; i < (S::l.whole_hidden ? S::l.own_chunks : 1); ++i) {
        const int chunk = static_cast<int>(half<S>()) * S::l.own_chunks + i;
        vectors.bias_1[i] = doubled(S::l.bias_1 + 2 * S::c.model * chunk, layer);
      }
    }
  }
  __device__ __forceinline__ float2 doubled(int at, float2 Vectors::*ahead) const {
    return S::l.vectors_ahead ? vectors.*ahead : doubled(at, progress / 2);
  }
  __device__ __forceinline__ float2 single(int at, float2 Vectors::*ahead) const {
    return S::l.vectors_ahead ? vectors.*ahead : single(at, progress / 2);
  }
  __device__ __forceinline__ float2 hidden_bias(int chunk) const {
    return S::l.vectors_ahead ? vectors.bias_1[chunk] : doubled(S::l.bias_1 + 2 * S::c.model * chunk, progress / 2);
  }

  // --- products

  static __device__ __forceinline__ u32 tokens_operand() { return shared_base() + S::l.operand_at; }
  static __device__ __forceinline__ u32 queries_operand() { return shared_base() + S::l.queries_at; }
  static __device__ __forceinline__ u32 hidden_operand(int chunk) {
    return shared_base() + S::l.hidden_at +
           (S::l.whole_hidden      ? chunk
            : S::l.more_stages > 0 ? 0
                                   : chunk % 2) *
               S::l.operand_bytes;
  }

  struct Nothing {
    __device__ __forceinline__ void operator()(int) const {}
  };

  // D = W * operand, or D += : block kBlock of the layer's weights. Of the parts of the sum one is always on its way:
  // the last when this returns, and kAfterAnother says so of the product before. `beside(i)`, where i is a constant
  // once inlined, is done under part i, when all before it are there.
  template <bool kFresh, int kBlock, bool kAfterAnother, int kUnits = S::l.units, typename Beside = Nothing>
  __device__ __forceinline__ void multiply(float (&d)[kValues], u32 from, Beside&& beside = {}) {
    const u64 tokens = operand<128>(anew(from));
    wgmma::settle(d);
    multiply_part<kFresh, kBlock * S::l.units, kAfterAnother, kUnits, 0>(d, tokens, beside);
  }

  template <bool kFresh, int kTile, bool kAfterAnother, int kUnits, int kUnit, typename Beside>
  __device__ __forceinline__ void multiply_part(float (&d)[kValues], u64 tokens, Beside&& beside) {
    const u64 tile = operand<128>(weights.template next<kTile>(parity())),
              part = further(tokens, kUnit * (S::l.rows * 128));
    wgmma::begin();
    wgmma::multiply_shared<!(kFresh && kUnit == 0)>(d, tile, part);
#pragma unroll
    for (int k = 1; k < 4; ++k) wgmma::multiply_shared<true>(d, further(tile, k * 32), further(part, k * 32));
    wgmma::commit();
    weights.template look<kTile + 1>(parity());
    if constexpr (kAfterAnother) {
      wgmma::wait<1>();
      weights.template release<kTile - 1, kTile + 1>();
    }
    beside(kUnit);
    if constexpr (kUnit + 1 < kUnits) multiply_part<kFresh, kTile + 1, true, kUnits, kUnit + 1>(d, tokens, beside);
  }

  // After block kBlock.
  template <int kBlock, int kUnits = S::l.units>
  __device__ __forceinline__ void finish(float (&d)[kValues]) {
    constexpr int kNext = kBlock * S::l.units + kUnits;
    wgmma::wait<0>();
    weights.template release<kNext - 1, kNext>();
    wgmma::settle(d);
  }

  // x += a sum of which each half of a pair has a part: both parts in fp16, for the same bits in both CTAs. `which` of
  // a layer's two sums.
  __device__ __forceinline__ void add_halves(float (&x)[kValues], const float (&d)[kValues], int which) const {
    static_assert(kPacked == 4);
    const u32 ready = SplitBarriers<S>::sums_ready(which);
    const u32 at = shared_base() + S::l.sums_at + which * S::l.sums_bytes + threadIdx.x * 16;
    u32 a[kPacked];
    pack_rows(a, d);
    if (threadIdx.x == 0) mbarrier::arrive_expecting(ready, S::l.sums_bytes);
    send_registers(address_in(other_half(), at), a, address_in(other_half(), ready));
    mbarrier::wait(ready, parity());
    const float4 v = shared_floats(at);
    const u32 b[kPacked] = {__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w)};
#pragma unroll
    for (int i = 0; i < kPacked; ++i) {
      x[2 * i] += low_of(a[i]) + low_of(b[i]), x[2 * i + 1] += low_of(a[i] >> 16) + low_of(b[i] >> 16);
    }
  }
  static __device__ __forceinline__ float low_of(u32 pair) { return to_float(f16{static_cast<u16>(pair)}); }

  // This warp's 16 features of all tokens to an operand.
  __device__ __forceinline__ void store_operand(const u32* a, u32 at) const {
    const u32 t = split_thread<S>(), row = t % 32 / 16 * 8 + t % 8, chunk = t % 128 / 32 * 2 + t / 8 % 2;
    at += t / 128 * (S::l.rows * 128) + row * 128 + (chunk ^ t % 8) * 16;
#pragma unroll
    for (int i = 0; i < kPacked / 4; ++i) store_matrices_transposed(at + 16 * i * 128, a + 4 * i);
  }
};

}  // namespace gnomon::kernels::resident
