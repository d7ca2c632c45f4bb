// The resident stack for few sequences and for wide ones. A cluster shares a sequence: each CTA holds some of its
// tokens through all layers, and only K and V go from CTA to CTA. Weights are the M of the products, so that any
// multiple of 16 tokens fills them, and each warpgroup keeps 64 features of the residual stream in registers, in fp32;
// operands lie in shared memory. Attention is a warp's for 16 queries of a head. Clusters take sequences in turn.
#pragma once

#include "resident_split_attention.cuh"
#include "resident_split_tokens.cuh"
#include "vec.cuh"

namespace gnomon::kernels::resident {

template <typename S>
struct Features {
  static constexpr int kValues = S::l.rows / 2;  // a thread's two features of each token
  static constexpr int kPacked = kValues / 2;

  using barriers = SplitBarriers<S>;

  const Call& p;
  SplitConsumer<S> weights;
  u32 progress = 0;  // twice the layer that is at work, and the parity of all layers done

  float x[kValues];

  __device__ __forceinline__ Features(const Call& call, int group) : p(call), weights(group) {}

  __device__ __forceinline__ u32 parity() const { return progress & 1; }

  // Registers are short: what follows from the thread's number is made anew each time.
  static __device__ __forceinline__ int warp() { return thread_anew() / 32; }   // of the CTA, 16 features each
  static __device__ __forceinline__ u32 rank() { return cluster_rank_anew(); }  // among the sequence's CTAs

  // All warps but the producer's.
  static __device__ __forceinline__ void meet() { named_barrier(1, 128 * S::c.groups); }
  static __device__ __forceinline__ void publish() {
    publish_shared_writes();
    meet();
  }
  __device__ __forceinline__ bool is_first() const { return threadIdx.x == 0; }

  // --- the layer's vectors: the thread's two features, from device memory well before they are used

  __device__ __forceinline__ float2 doubled(int at) const {
    const int t = thread_anew();
    const float* v = p.vectors + i64{progress / 2} * S::l.layer_floats + at + t / 32 * 32 + t % 32 / 8 * 4 + t % 8 / 4;
    return {v[0], v[16]};
  }
  __device__ __forceinline__ float2 single(int at) const {
    const int t = thread_anew();
    const float* v = p.vectors + i64{progress / 2} * S::l.layer_floats + at + t / 32 * 16 + t % 32 / 8 * 4 + t % 8 / 4;
    return {v[0], v[2]};
  }

  // --- products: 64 outputs of this group for all tokens

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

  // --- from registers to shared memory

  // This warp's 16 features of all tokens to an operand.
  __device__ __forceinline__ void store_operand(const u32* a, u32 at) const {
    const u32 t = thread_anew(), row = t % 32 / 16 * 8 + t % 8, chunk = t % 128 / 32 * 2 + t / 8 % 2;
    at += t / 128 * (S::l.rows * 128) + row * 128 + (chunk ^ t % 8) * 16;
#pragma unroll
    for (int i = 0; i < kPacked / 4; ++i) store_matrices_transposed(at + 16 * i * 128, a + 4 * i);
  }

  // The same to K or V. A key that nobody sees adds nothing, whatever it holds: 0 * NaN would.
  __device__ __forceinline__ void store_keys(u32* a, u32 at) const {
    if constexpr (S::c.masked || S::c.seq % 16 != 0) {
#pragma unroll
      for (int i = 0; i < kPacked; i += 2) {
        const int token = first_token() + 4 * i + threadIdx.x % 4 * 2;
        const u32 keep = (is_valid(token) ? 0xffffu : 0) | (is_valid(token + 1) ? 0xffff0000u : 0);
        a[i] &= keep, a[i + 1] &= keep;
      }
    }
    const u32 t = thread_anew(), row = t % 32 / 16 * 8 + t % 8, chunk = t / 32 * 2 + t / 8 % 2;
    at += shared_base() + (first_token() + row) * S::l.row_bytes + (chunk ^ t % 8) * 16;
#pragma unroll
    for (int i = 0; i < kPacked / 4; ++i) {
      if (first_token() + 16 * i >= S::l.keys) break;
      store_matrices_transposed(at + 16 * i * S::l.row_bytes, a + 4 * i);
    }
  }

  // --- K and V of the whole sequence in every CTA that needs them

  __device__ __forceinline__ void expect_keys() const {
    if constexpr (S::l.used == 1) return;
    if (!is_first()) return;
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

  // --- the layer

  // K and V go out as soon as they are there, and travel under the products that follow; where there are registers for
  // two accumulators, under the first part of the next one they are packed and stored too. Q takes its operand's place.
  __device__ __forceinline__ void project() {
    constexpr bool kUnderNext = 3 * kValues + kPacked + 40 <= S::l.registers;
    float d[kValues], e[kUnderNext ? kValues : 1];
    u32 a[kPacked];
    const auto pack = [&](float(&of)[kValues], float2 bias) {
      add_to_tokens(of, bias);
      pack_rows(a, of);
    };
    const auto give_keys = [&](float(&of)[kValues], float2 bias) {
      pack(of, bias);
      wait_for_receivers(S::l.hidden_over_keys ? barriers::keys_free() : barriers::keys_taken(), parity() ^ 1);
      store_keys(a, 0);
      send_keys(0, barriers::keys_ready());
    };
    const auto give_values = [&](float(&of)[kValues], float2 bias) {
      pack(of, bias);
      store_keys(a, S::l.values_at);
      send_keys(S::l.values_at, barriers::values_ready());
    };
    expect_keys();
    const float2 bias_k = doubled(S::l.bias_k), bias_v = doubled(S::l.bias_v), bias_q = doubled(S::l.bias_q);
    multiply<true>(d, tokens_operand());
    if constexpr (kUnderNext) {
      multiply<true, true>(e, tokens_operand(), [&](int unit) {
        if (unit > 0) return;
        wgmma::settle(d);
        give_keys(d, bias_k);
      });
      multiply<true, true>(d, tokens_operand(), [&](int unit) {
        if (unit > 0) return;
        wgmma::settle(e);
        give_values(e, bias_v);
      });
    } else {
      finish(d);
      give_keys(d, bias_k);
      multiply<true>(d, tokens_operand());
      finish(d);
      give_values(d, bias_v);
      multiply<true>(d, tokens_operand());
    }
    finish(d);
    pack(d, bias_q);
    meet();
    store_operand(a, tokens_operand());
    meet();
  }

  // Each head's output replaces its queries.
  __device__ __forceinline__ void attend() const {
    constexpr int kTiles = S::l.rows / 16;
    if constexpr (S::l.used > 1) mbarrier::wait(barriers::keys_ready(), parity());
#pragma unroll 1
    for (int i = warp(); i < S::c.heads * kTiles; i += 4 * S::c.groups) {
      if (first_token() + i % kTiles * 16 >= S::c.seq) continue;
      RowTile<S>(i / kTiles, i % kTiles, static_cast<int>(rank())).run(parity());
    }
  }

  // x += Wo * attention + bo
  __device__ __forceinline__ void attention_block() {
    project();
    attend();
    const float2 bias = single(S::l.bias_o);
    publish();
    tell_senders(barriers::keys_taken());
    add_to_tokens(x, bias);
    multiply<false>(x, tokens_operand());
    finish(x);
  }

  // x += W2 * act(W1 * a + b1) + b2, by `model` hidden units. Activations are computed under the product of the units
  // before, in as many parts as it has where these are whole ones.
  __device__ __forceinline__ void feed_forward_block() {
    constexpr bool kInParts = kValues % (8 * S::l.units) == 0;
    constexpr int kPart = kInParts ? kValues / S::l.units : kValues;
    float d[kValues];
    u32 a[kPacked];
    float2 bias = doubled(S::l.bias_1);
    const float2 bias_2 = single(S::l.bias_2);
    multiply<true>(d, tokens_operand());
    if constexpr (S::l.hidden_over_keys) wait_for_receivers(barriers::keys_taken(), parity());
    finish(d);
    add_to_tokens(x, bias_2);
    activate_tokens<S::c.activation, 0, kValues>(a, d, bias);
    store_operand(a, hidden_operand(0));
    publish();
#pragma unroll 1
    for (int chunk = 1; chunk < S::l.chunks; ++chunk) {
      bias = doubled(S::l.bias_1 + 2 * S::c.model * chunk);
      multiply<true>(d, tokens_operand());
      multiply<false, true>(x, hidden_operand(chunk - 1), [&](int unit) {
        if (unit == 0) wgmma::settle(d);
        if constexpr (!kInParts) {
          if (unit == S::l.units - 1) activate_tokens<S::c.activation, 0, kPart>(a, d, bias);
        } else {
          activate_part<kPart>(a, d, bias, unit);
        }
      });
      finish(x);
      store_operand(a, hidden_operand(chunk));
      publish();
    }
    multiply<false>(x, hidden_operand(S::l.chunks - 1));
    finish(x);
  }

  // `unit` is a constant where this is called: the loop around it is unrolled.
  template <int kPart>
  static __device__ __forceinline__ void activate_part(u32* a, const float (&d)[kValues], float2 bias, int unit) {
    if (unit == 0) activate_tokens<S::c.activation, 0, kPart>(a, d, bias);
    if constexpr (S::l.units > 1) {
      if (unit == 1) activate_tokens<S::c.activation, kPart, kPart>(a, d, bias);
    }
    if constexpr (S::l.units > 2) {
      if (unit == 2) activate_tokens<S::c.activation, 2 * kPart, kPart>(a, d, bias);
      if (unit == 3) activate_tokens<S::c.activation, 3 * kPart, kPart>(a, d, bias);
    }
  }

  // A thread for each token gets what is known of it: finish(token of the CTA, mean, variance).
  template <typename Finish>
  __device__ __forceinline__ void over_tokens(Finish&& finish) const {
    const u32 at = shared_base() + S::l.statistics_at;
    store_moments(x, at + warp() * (8 * S::l.rows));
    meet();
    const int token = thread_anew();
    if (token < S::l.rows) {
      const Moments m = load_moments<4 * S::c.groups>(at + 8 * token, 8 * S::l.rows);
      finish(token, m.mean, m.squares * (1.0f / S::c.model));
    }
  }

  // LayerNorm of x, into the next products' operand and, where kKeep says so, into x.
  template <bool kKeep>
  __device__ __forceinline__ void normalise(u32* a, float2 gain, float2 shift) {
    const u32 tokens = shared_base() + S::l.tokens_at;
    over_tokens([&](int token, float mean, float variance) {
      store_shared(tokens + 8 * token, __float_as_uint(mean));
      store_shared(tokens + 8 * token + 4, __float_as_uint(rsqrtf(variance + p.eps)));
    });
    meet();
    normalise_tokens<kKeep>(a, x, tokens + thread_anew() % 4 * 16, gain, shift);
  }
  __device__ __forceinline__ void norm(int gain, int shift) {
    u32 a[kPacked];
    normalise<!S::c.pre_norm>(a, single(gain), single(shift));
    store_operand(a, tokens_operand());
    publish();
  }

  __device__ __forceinline__ void run_layer() {
    if constexpr (S::c.pre_norm) norm(S::l.gain1, S::l.shift1);
    attention_block();
    if constexpr (S::c.pre_norm) {
      norm(S::l.gain2, S::l.shift2);
    } else {
      norm(S::l.gain1, S::l.shift1);
    }
    feed_forward_block();
    if constexpr (S::l.hidden_over_keys) {
      meet();
      tell_senders(barriers::keys_free());
    }
    if constexpr (!S::c.pre_norm) norm(S::l.gain2, S::l.shift2);
    progress = progress + 2 ^ 1;
  }

  // --- the ends

  __device__ __forceinline__ int first_token() const { return static_cast<int>(rank()) * S::l.rows; }

  // Of the thread's value x[i]: the token, and the feature.
  __device__ __forceinline__ int token(int i) const {
    return first_token() + i / 4 * 8 + thread_anew() % 4 * 2 + i % 2;
  }
  __device__ __forceinline__ int feature(int i) const { return 16 * warp() + thread_anew() % 32 / 4 + i % 4 / 2 * 8; }

  __device__ __forceinline__ bool is_valid(int token) const {
    if constexpr (!S::c.masked) return token < S::c.seq;
    return load_shared(shared_base() + S::l.masks_at + token / 32 * 4) >> token % 32 & 1;
  }

  // Tokens that do not exist are zero: finite in every layer.
  __device__ __forceinline__ void load(i64 sequence) {
    const float* from = p.input + sequence * p.input_sequence;
#pragma unroll
    for (int i = 0; i < kValues; ++i) x[i] = token(i) < S::c.seq ? from[token(i) * p.input_token + feature(i)] : 0.0f;
  }

  // A bit for each key.
  __device__ __forceinline__ void read_mask(i64 sequence) const {
    constexpr int kWords = (S::l.keys + 31) / 32;
    const int lane = threadIdx.x % 32;
    for (int w = warp(); w < kWords; w += 4 * S::c.groups) {
      const int key = 32 * w + lane;
      const bool valid = key < S::c.seq && p.mask.data[sequence * p.mask.sequence + key * p.mask.token] != 0;
      const u32 word = __ballot_sync(kAllLanes, valid);
      if (lane == 0) store_shared(shared_base() + S::l.masks_at + 4 * w, word);
    }
    meet();
  }

  // Raises a flag for each token whose root mean square is outside the range, but for zeros that the mask leaves out.
  __device__ __forceinline__ void check_range() const {
    over_tokens([&](int token, float mean, float variance) {
      const float size = square_root(variance + mean * mean);
      token += first_token();
      const bool inside = size >= p.range[0] && size <= p.range[1];  // NaN is not
      const bool empty_padding = S::c.masked && size == 0 && token < S::c.seq && !is_valid(token);
      if (token < S::c.seq && !inside && !empty_padding) raise(p.flags, kOutsideRange);
    });
    meet();  // the statistics have been read
  }

  __device__ __forceinline__ void final_norm() {
    const int low = feature(0), high = feature(2);
    const float2 gain{p.final_gain[low], p.final_gain[high]};
    float2 shift{};
    if (p.final_shift) shift = {p.final_shift[low], p.final_shift[high]};
    u32 unused[kPacked];
    normalise<true>(unused, gain, shift);
  }

  __device__ __forceinline__ void store(i64 sequence) const {
    float* to = p.output + sequence * p.output_sequence;
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      if (token(i) >= S::c.seq) continue;
      to[token(i) * p.output_token + feature(i)] = x[i];
      finite &= is_finite(x[i]);
    }
    if (p.flags && !finite) raise(p.flags, kOutputNotFinite);
  }

  // The grid has no more clusters than there are sequences for: each has a first one.
  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int sequence = block_anew() / S::c.cluster; sequence < p.batch; sequence += blocks_anew() / S::c.cluster) {
      load(sequence);
      if (sequence == block_anew() / S::c.cluster) cluster_barrier_relaxed();
      if constexpr (S::c.masked) read_mask(sequence);
      if (p.range) check_range();
      if constexpr (!S::c.pre_norm) {
        u32 a[kPacked];
        pack_rows(a, x);
        store_operand(a, tokens_operand());
        publish();
      }
#pragma unroll 1
      for (progress &= 1; progress / 2 < static_cast<u32>(p.layers);) run_layer();
      if constexpr (S::c.final_norm) final_norm();
      store(sequence);
    }
  }
};

template <typename S>
__global__ void __cluster_dims__(S::c.cluster, 1, 1) __launch_bounds__(S::l.threads, 1) resident_split(const Call p) {
  if (threadIdx.x < 32) SplitBarriers<S>::init();
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128), 0);  // known to be the warp's
  if (cluster_rank() >= S::l.used) {
    cluster_barrier_relaxed();
  } else if (group < S::c.groups) {
    if constexpr (S::l.split_registers) take_registers<S::l.registers>();
    Features<S>(p, group).run();
  } else {
    if constexpr (S::l.split_registers) give_registers<kProducerRegisters>();
    cluster_barrier_relaxed();
    if (threadIdx.x == 128 * S::c.groups) SplitProducer<S>().run(p);
    __syncwarp();
  }
  cluster_barrier();  // no CTA leaves while another may write its memory
}

}  // namespace gnomon::kernels::resident
