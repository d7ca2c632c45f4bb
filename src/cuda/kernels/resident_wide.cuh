// The resident stack for d_model 512: a cluster of two CTAs shares a sequence, and each has half of the features of all
// tokens, so that a sequence reads each weight once. Weights are the M of the products, tokens their N; each of two
// warpgroups keeps 128 features of the residual stream in registers, in fp32. The operand of the products, all
// features, lies in both CTAs: what a warpgroup makes of it goes into its own shared memory and, by a bulk copy, into
// the other CTA's. Clusters take sequences in turn.
#pragma once

#include "memory.cuh"
#include "resident_wide_attention.cuh"
#include "vec.cuh"

namespace gnomon::kernels::resident {

template <typename S>
struct WideGroup : WideAttention<S> {
  using Attention = WideAttention<S>;
  using Attention::add_to_residual, Attention::d, Attention::doubled, Attention::elected, Attention::exchange_panel,
      Attention::finish, Attention::first_feature, Attention::free_exchanged, Attention::give_exchanged,
      Attention::give_operand, Attention::group, Attention::kPacked, Attention::kPanel, Attention::kValues,
      Attention::lane, Attention::meet, Attention::meet_group, Attention::multiply, Attention::operand_panel,
      Attention::p, Attention::progress, Attention::rank, Attention::send, Attention::settle_residual,
      Attention::single, Attention::store_panel, Attention::warp, Attention::x;
  using barriers = WideBarriers<S>;

  __device__ __forceinline__ WideGroup(const Call& call, int of) : Attention(call, of) {}

  // --- the layer

  // x += Wo * attention + bo, by the heads of two rounds. While the outputs of one are on their way the next one's
  // queries are made. A loop, as below: the code of a layer is longer than the instruction cache.
  __device__ __forceinline__ void attention_block() {
    add_to_residual(S::l.bias_o);
#pragma unroll 1
    for (int round = static_cast<int>(anew(0)); round < 3; ++round) {
      u32 a[kPacked];
      if (round < 2) {
        this->make_queries(a, round, [&](int tile) {
          if (tile == S::l.panels - 1 && round == 0) mbarrier::wait(barriers::operand_full(), 0);
        });
      }
      if (round > 0) {
        mbarrier::wait(barriers::exchange_full(), round - 1);
        this->template multiply_exchanged<false>();
        finish();
        settle_residual();
      }
      if (round == 1) {
        free_exchanged();
        mbarrier::wait(barriers::exchange_free(), 0);
      }
      if (round < 2) this->attend_to_heads(a, round);
    }
  }

  // Values [8 * part, 8 * part + 8) of the hidden units'.
  template <int kPart = 0>
  __device__ __forceinline__ void activate(u32 (&a)[kPacked], float2 bias, int part) const {
    constexpr int kFirst = 8 * kPart, kCount = kValues - kFirst < 8 ? kValues - kFirst : 8;
    if (part == kPart) activate_tokens<S::c.activation, kFirst, kCount>(a, d, bias);
    if constexpr (kFirst + kCount < kValues) activate<kPart + 1>(a, bias, part);
  }
  __device__ __forceinline__ float2 hidden_bias(int step) const {
    return doubled(S::l.bias_1, 64 * (4 * step + 2 * rank() + group));
  }
  __device__ __forceinline__ void hand_over(const u32 (&a)[kPacked]) const {
    store_panel(a, exchange_panel(group));
    publish_shared_writes();
    meet_group();
    if (elected()) give_exchanged();
  }

  // x += W2 * act(W1 * operand + b1) + b2. Activations are computed under the second product of the hidden units
  // before, and exchanged under the first product of the next ones.
  __device__ __forceinline__ void feed_forward_block() {
    u32 a[kPacked];
    float2 bias = hidden_bias(0);
    add_to_residual(S::l.bias_2);
    multiply([&](int tile) {
      if (tile == S::l.panels - 1) mbarrier::wait(barriers::operand_full(), 1);
    });
    wgmma::wait<0>();
    wgmma::settle(d);
#pragma unroll
    for (int i = 0; i < 8; ++i) activate(a, bias, i);
#pragma unroll 1
    for (int step = static_cast<int>(anew(0)); step < S::l.steps - 1; ++step) {
      bias = hidden_bias(step + 1);
      const u32 parity = anew(step & 1);
      this->template multiply<true>([&](int tile) {
        if (tile == 0 && step > 0) free_exchanged();
        if (tile == 3) {
          if (step > 0) mbarrier::wait(barriers::exchange_free(), parity);
          hand_over(a);
        }
      });
      mbarrier::wait(barriers::exchange_full(), parity);
      this->template multiply_exchanged<true>([&](int tile) {
        if (tile == 0) wgmma::settle(d);
        activate(a, bias, tile);
      });
    }
    finish();
    constexpr u32 kParity = (S::l.steps - 1) % 2;
    free_exchanged();
    mbarrier::wait(barriers::exchange_free(), kParity);
    hand_over(a);
    mbarrier::wait(barriers::exchange_full(), kParity);
    this->template multiply_exchanged<false>();
    finish();
    settle_residual();
  }

  // --- norms

  using Parts = typename NormParts<S::c.pre_norm>::type;
  static __device__ __forceinline__ Moments moments(const Moments& m) { return m; }
  static __device__ __forceinline__ Moments moments(const Sums& s) {  // of a warp's 32 features
    const float mean = s.sum * (1.0f / 32);
    return {mean, fmaxf(s.squares - s.sum * mean, 0.0f)};
  }
  static __device__ __forceinline__ void store_pair(u32 at, float first, float second) {
    store_shared(at, __float_as_uint(first));
    store_shared(at + 4, __float_as_uint(second));
  }

  // Of each token over the warp's features, to `at`.
  __device__ __forceinline__ void store_warp_moments(u32 at) const {
    constexpr int kReal = kValues / 2, kTokens = up(kReal, 8), kLeft = kTokens / 8;
    Parts m[kTokens / 2];
    const int t = static_cast<int>(anew(threadIdx.x));
    int first = 0;
    merge_lanes<kTokens, 16>(m, first, t, 4.0f, [&](int i) {
      if (i >= kReal) return Parts{};
      const int low = i / 2 * 4 + i % 2;
      return merged(Parts::of(x[0][low], x[0][low + 2]), Parts::of(x[1][low], x[1][low + 2]), 2.0f);
    });
#pragma unroll
    for (int i = 0; i < kLeft; ++i) {
      const int token = (first + i) / 2 * 8 + t % 4 * 2 + (first + i) % 2;
      if (kTokens > kReal && first + i >= kReal) continue;
      const Moments all = moments(m[i]);
      store_pair(at + 8 * token, all.mean, all.squares);
    }
  }
  // Of a token over this CTA's features. Not pairwise: all means are there.
  static __device__ __forceinline__ Moments load_moments(u32 at) {
    constexpr int kWarps = 4 * S::l.kGroups;
    float2 m[kWarps];
    float mean = 0, squares = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) m[w] = shared_pair(at + w * (8 * S::l.rows)), mean += m[w].x * (1.0f / kWarps);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) squares += m[w].y + 32 * ((m[w].x - mean) * (m[w].x - mean));
    return {mean, squares};
  }

  // A thread for each token gets what is known of it: finish(token, mean, variance). Warps' moments lie over what the
  // other CTA gave last: that has been read here, while what this one gave may still be on its way. The other gives
  // anew only after it has this one's moments.
  template <typename Finish>
  __device__ __forceinline__ void over_tokens(Finish&& finish) {
    meet();
    const u32 warps = exchange_panel(S::l.kGroups), own = shared_base() + S::l.moments_at,
              others = shared_base() + S::l.other_moments_at;
    store_warp_moments(warps + (4 * group + warp()) * (8 * S::l.rows));
    meet();
    if (group == 0 && warp() < S::l.token_warps) {
      const int token = threadIdx.x, first = 32 * warp();
      Moments m{};
      if (token < S::l.rows) m = load_moments(warps + 8 * token);
      mbarrier::wait(barriers::moments_read(), progress & 1 ^ 1);  // the last ones: they lie here and there
      if (token < S::l.rows) store_pair(own + 8 * token, m.mean, m.squares);
      publish_shared_writes();
      __syncwarp();
      if (lane() == 0) {
        const u32 bytes = 8 * min(32, S::l.rows - first);
        mbarrier::arrive_expecting(barriers::moments_full(), bytes);
        send(others + 8 * first, own + 8 * first, bytes, barriers::moments_full());
      }
      mbarrier::wait(barriers::moments_full(), progress & 1);
      if (token < S::l.rows) {
        const float2 other = shared_pair(others + 8 * token);
        m = merged(m, Moments{other.x, other.y}, S::c.model / 2);
        finish(token, m.mean, m.squares * (1.0f / S::c.model));
      }
      __syncwarp();
      if (lane() == 0) mbarrier::arrive_remote(address_in(rank() ^ 1, barriers::moments_read()));
    }
    progress ^= 1;
    meet();
  }

  // LayerNorm of x, handed to `take` as a panel, and where kKeep says so into x.
  template <bool kKeep, typename Take>
  __device__ __forceinline__ void normalise(const float2 (&gain)[2], const float2 (&shift)[2], Take&& take) {
    const u32 tokens = shared_base() + S::l.tokens_at;
    over_tokens([&](int token, float mean, float variance) {
      const float inverse = rsqrtf(variance + p.eps);
      store_pair(tokens + 8 * token, inverse, -mean * inverse);
    });
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      u32 a[kPacked];
#pragma unroll
      for (int i = 0; i < kValues; i += 4) {
        const float4 of = shared_floats(tokens + lane() % 4 * 16 + 16 * i);
        float y[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float unit = x[t][i + k] * (k % 2 ? of.z : of.x) + (k % 2 ? of.w : of.y);
          y[k] = unit * (k < 2 ? gain[t].x : gain[t].y) + (k < 2 ? shift[t].x : shift[t].y);
          if constexpr (kKeep) x[t][i + k] = y[k];
        }
        a[i / 2] = pack2<f16>(y[0], y[1]), a[i / 2 + 1] = pack2<f16>(y[2], y[3]);
      }
      take(a, t);
    }
  }
  __device__ __forceinline__ void norm(int gain_at, int shift_at, bool is_read = true) {
    const float2 gain[2] = {single(gain_at, first_feature(0)), single(gain_at, first_feature(1))},
                 shift[2] = {single(shift_at, first_feature(0)), single(shift_at, first_feature(1))};
    normalise<!S::c.pre_norm>(gain, shift, [&](const u32* a, int t) { give_operand(a, t, is_read); });
    meet();
  }

  // A sublayer and its norm, which give the operand once.
  __device__ __forceinline__ void run_sublayer() {
    const bool second = progress / 2 % 2 != 0;
    const int gain = second ? S::l.gain2 : S::l.gain1, shift = second ? S::l.shift2 : S::l.shift1;
    if constexpr (S::c.pre_norm) norm(gain, shift);
    if (second) {
      feed_forward_block();
    } else {
      attention_block();
    }
    if constexpr (!S::c.pre_norm) norm(gain, shift, progress / 2 + 1 < 2 * static_cast<u32>(p.layers));
  }

  // --- the ends

  __device__ __forceinline__ int feature() const { return first_feature(0) + 16 * warp() + lane() / 4; }

  // Tokens that do not exist are zero: finite in every layer.
  __device__ __forceinline__ void load(i64 sequence) {
    const i64 step = p.input_token;
    const int first = lane() % 4 * 2;
    const float* from = p.input + sequence * p.input_sequence + first * step + feature();
#pragma unroll
    for (int i = 0; i < kValues; i += 4, from += 8 * step) {
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        const bool there = first + 2 * i + next < S::c.seq;
#pragma unroll
        for (int k = 0; k < 4; ++k)
          x[k / 2][i + next + k % 2 * 2] = there ? from[next * step + k / 2 * 64 + k % 2 * 8] : 0;
      }
    }
  }

  __device__ __forceinline__ void store(i64 sequence) const {
    const i64 step = p.output_token;
    const int first = lane() % 4 * 2;
    float* to = p.output + sequence * p.output_sequence + first * step + feature();
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kValues; i += 4, to += 8 * step) {
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        if (first + 2 * i + next >= S::c.seq) continue;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float v = x[k / 2][i + next + k % 2 * 2];
          to[next * step + k / 2 * 64 + k % 2 * 8] = v;
          finite &= is_finite(v);
        }
      }
    }
    if (p.flags && !finite) raise(p.flags, kOutputNotFinite);
  }

  // A bit for each key.
  __device__ __forceinline__ void read_mask(i64 sequence) const {
    const int key = threadIdx.x;
    if (group == 0) {
      const bool valid = key < S::c.seq && p.mask.data[sequence * p.mask.sequence + key * p.mask.token] != 0;
      const u32 word = __ballot_sync(kAllLanes, valid);
      if (key % 32 == 0) store_shared(shared_base() + S::l.masks_at + key / 8, word);
    }
    meet();
  }

  // Raises a flag for each token whose root mean square is outside the range, but for zeros that the mask leaves out.
  __device__ __forceinline__ void check_range() {
    over_tokens([&](int token, float mean, float variance) {
      const float size = square_root(variance + mean * mean);
      const bool inside = size >= p.range[0] && size <= p.range[1];  // NaN is not
      bool empty_padding = false;
      if constexpr (S::c.masked) {
        const u32 bits = load_shared(shared_base() + S::l.masks_at + token / 32 * 4);
        empty_padding = size == 0 && (bits >> token % 32 & 1) == 0;
      }
      if (token < S::c.seq && !inside && !empty_padding) raise(p.flags, kOutsideRange);
    });
  }

  __device__ __forceinline__ void give_input() const {
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      u32 a[kPacked];
      pack_rows(a, x[t]);
      give_operand(a, t);
    }
    meet();
  }

  __device__ __forceinline__ void final_norm() {
    float2 gain[2], shift[2]{};
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const int low = feature() + 64 * t;
      gain[t] = {p.final_gain[low], p.final_gain[low + 8]};
      if (p.final_shift) shift[t] = {p.final_shift[low], p.final_shift[low + 8]};
    }
    normalise<true>(gain, shift, [](const u32*, int) {});
  }

  // The grid has no more clusters than there are sequences for: each has a first one.
  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int sequence = block_anew() / 2; sequence < p.batch; sequence += blocks_anew() / 2) {
      load(sequence);
      if (sequence == block_anew() / 2) cluster_barrier();
      if constexpr (S::c.masked) read_mask(sequence);
      if (p.range) check_range();
      if (!S::c.pre_norm && p.layers > 0) give_input();
#pragma unroll 1
      for (progress &= 1; progress / 2 < 2 * static_cast<u32>(p.layers); progress += 2) run_sublayer();
      if constexpr (S::c.final_norm) final_norm();
      store(sequence);
    }
    cluster_barrier();  // no CTA leaves while the other may write its memory
  }
};

template <typename S>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(S::l.threads, 1) resident_wide(const Call p) {
  if (threadIdx.x == 0) WideBarriers<S>::init();
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128), 0);  // known to be the warp's
  if (group < S::l.kGroups) {
    take_registers<S::l.kRegisters>();
    WideGroup<S>(p, group).run();
  } else {
    give_registers<kProducerRegisters>();
    cluster_barrier();
    if (threadIdx.x % 32 == 0 && threadIdx.x / 32 - 4 * S::l.kGroups < S::l.kGroups) {
      WideProducer<S>().run(p);
    }
    __syncwarp();
    cluster_barrier();
  }
}

}  // namespace gnomon::kernels::resident
