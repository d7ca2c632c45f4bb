// The resident stack for few sequences and for wide ones. A cluster shares a sequence: each CTA holds some of its
// tokens through all layers, and only K and V go from CTA to CTA. Weights are the M of the products, so that any
// multiple of 16 tokens fills them, and each warpgroup keeps 64 features of the residual stream in registers, in fp32;
// operands lie in shared memory. Attention is a warp's for 16 queries of a head. Clusters take sequences in turn.
#pragma once

#include "resident_split_attention.cuh"
#include "resident_split_keys.cuh"
#include "resident_split_tokens.cuh"
#include "vec.cuh"

namespace gnomon::kernels::resident {

template <typename S>
struct Features : SplitKeys<S> {
  using Keys = SplitKeys<S>;
  using barriers = SplitBarriers<S>;
  using Keys::doubled, Keys::first_token, Keys::hidden_bias, Keys::hidden_operand, Keys::is_valid, Keys::kPacked,
      Keys::kValues, Keys::load_vectors, Keys::meet, Keys::p, Keys::parity, Keys::progress, Keys::project,
      Keys::publish, Keys::queries_operand, Keys::rank, Keys::single, Keys::store_operand, Keys::tell_senders,
      Keys::tokens_operand, Keys::wait_for_receivers, Keys::warp;
  using typename Keys::Vectors;

  float x[kValues];

  __device__ __forceinline__ Features(const Call& call, int group) : Keys(call, group) {}

  // --- the layer

  // Each head's output replaces its queries. Heads that lie in a warpgroup's features are its own business.
  __device__ __forceinline__ void attend() const {
    constexpr int kAttending = S::l.attending, kTiles = S::l.rows / 16, kHeads = S::l.row_tiles / kTiles;
    constexpr int kTogether = S::l.tiles_together, kParts = (kTiles + kTogether - 1) / kTogether;  // of a head
    const int team = warp() / kAttending;
    if constexpr (S::l.used > 1) mbarrier::wait(barriers::keys_ready(), parity());
    if constexpr (S::l.share_keys) {
      const int i = warp() % kAttending, head = team * kHeads + i % kHeads, part = i / kHeads;
      if (part < S::l.parts) RowTiles<S>(head, 0, static_cast<int>(rank())).run_shared(parity(), part, head);
    } else {
#pragma unroll 1
      for (int i = warp() % kAttending; i < kHeads * kParts; i += kAttending) {
        // Of a causal sequence later tiles see more keys: in turn the first and the last.
        const int head = i / kParts, part = S::c.causal && head % 2 != 0 ? kParts - 1 - i % kParts : i % kParts;
        const int tile = part * kTogether;
        if (first_token() + 16 * tile >= S::c.seq) continue;
        RowTiles<S>(team * kHeads + head, tile, static_cast<int>(rank())).run(parity());
        if constexpr (kHeads * kParts <= kAttending) break;  // which the compiler does not see
      }
    }
  }

  // x += Wo * attention + bo
  __device__ __forceinline__ void attention_block() {
    project();
    attend();
    const float2 bias = single(S::l.bias_o, &Vectors::bias_o);
    publish();
    tell_senders(barriers::keys_taken());
    if constexpr (S::l.more_stages > 0) mbarrier::arrive(barriers::keys_read());  // each for itself: release_vectors
    add_to_tokens(x, bias);
    if constexpr (S::l.halves == 2) {
      float d[kValues];
      this->template multiply<true, S::l.output_block, false, 1>(d, queries_operand());
      this->template finish<S::l.output_block, 1>(d);
      this->weights.template skip<S::l.output_block * S::l.units + 1>(parity());
      this->add_halves(x, d, 0);
    } else {
      this->template multiply<false, 3, false>(x, queries_operand());
      this->template finish<3>(x);
    }
  }

  // x += W2 * act(W1 * a + b1) + b2, by `model` hidden units. Activations are computed under the product of the units
  // before, in as many parts as it has where these are whole ones.
  __device__ __forceinline__ void feed_forward_block() {
    constexpr bool kInParts = kValues % (8 * S::l.units) == 0;
    constexpr int kPart = kInParts ? kValues / S::l.units : kValues;
    float d[kValues];
    u32 a[kPacked];
    float2 bias = hidden_bias(0);
    const float2 bias_2 = single(S::l.bias_2, &Vectors::bias_2);
    this->template multiply<true, 4, false>(d, tokens_operand());
    if constexpr (S::l.hidden_over_keys) wait_for_receivers(barriers::keys_taken(), parity());
    this->template finish<4>(d);
    add_to_tokens(x, bias_2);
    activate_tokens<S::c.activation, 0, kValues>(a, d, bias);
    store_operand(a, hidden_operand(0));
    publish();
    if constexpr (S::l.chunks > 1) {
      const auto second = [&](int chunk) {
        bias = doubled(S::l.bias_1 + 2 * S::c.model * chunk, progress / 2);
        this->template multiply<false, 6, false>(x, hidden_operand(chunk - 1), [&](int part) {
          if (part == 0) wgmma::settle(d);
          if constexpr (!kInParts) {
            if (part == S::l.units - 1) activate_tokens<S::c.activation, 0, kPart>(a, d, bias);
          } else {
            activate_part<kPart>(a, d, bias, part);
          }
        });
      };
      const auto hand_over = [&](int chunk) {
        if constexpr (S::l.more_stages > 0) meet();  // the operand of the units before has been read
        store_operand(a, hidden_operand(chunk));
        publish();
      };
      this->template multiply<true, 5, false>(d, tokens_operand());
      this->template finish<5>(d);
#pragma unroll 1
      for (int chunk = 1; chunk < S::l.chunks - 1; ++chunk) {
        second(chunk);
        this->template multiply<true, 5, true>(d, tokens_operand(), [&](int part) {
          if (part == 0) hand_over(chunk);
        });
        this->template finish<5>(d);
      }
      second(S::l.chunks - 1);
      this->template finish<6>(x);
      hand_over(S::l.chunks - 1);
    }
    this->template multiply<false, 3 + 2 * S::l.chunks, false>(x, hidden_operand(S::l.chunks - 1));
    this->template finish<3 + 2 * S::l.chunks>(x);
  }

  // `part` is a constant where this is inlined.
  template <int kPart>
  static __device__ __forceinline__ void activate_part(u32* a, const float (&d)[kValues], float2 bias, int part) {
    if (part == 0) activate_tokens<S::c.activation, 0, kPart>(a, d, bias);
    if constexpr (S::l.units > 1) {
      if (part == 1) activate_tokens<S::c.activation, kPart, kPart>(a, d, bias);
    }
    if constexpr (S::l.units > 2) {
      if (part == 2) activate_tokens<S::c.activation, 2 * kPart, kPart>(a, d, bias);
      if (part == 3) activate_tokens<S::c.activation, 3 * kPart, kPart>(a, d, bias);
    }
  }

  // The same where all hidden units have an operand: the first product of all, each chunk's activations under the next
  // one's; then the second, and under it the next layer's vectors.
  __device__ __forceinline__ void whole_feed_forward_block() {
    constexpr int kChunks = S::l.own_chunks, kOutput = S::l.output_block;
    float2 bias[kChunks];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) bias[i] = hidden_bias(i);
    add_to_tokens(x, single(S::l.bias_2, &Vectors::bias_2));
    float d[2][kValues];
    first_products<0>(d, bias);
    this->template finish<kOutput + kChunks>(d[(kChunks - 1) % 2]);
    activate_chunk<kChunks - 1>(d, bias[kChunks - 1]);
    publish();
    if constexpr (S::l.halves == 2) {
      float sums[kValues];
      second_products<0>(sums);
      this->template finish<kOutput + 2 * kChunks>(sums);
      this->add_halves(x, sums, 1);
    } else {
      second_products<0>(x);
      this->template finish<kOutput + 2 * kChunks>(x);
    }
  }
  template <int kChunk>
  __device__ __forceinline__ void activate_chunk(float (&d)[2][kValues], float2 bias) {
    u32 a[kPacked];
    wgmma::settle(d[kChunk % 2]);
    activate_tokens<S::c.activation, 0, kValues>(a, d[kChunk % 2], bias);
    store_operand(a, hidden_operand(kChunk));
  }
  template <int kChunk>
  __device__ __forceinline__ void first_products(float (&d)[2][kValues], const float2* bias) {
    if constexpr (kChunk < S::l.own_chunks) {
      this->template multiply<true, S::l.output_block + 1 + kChunk, (kChunk > 0)>(
          d[kChunk % 2], tokens_operand(), [&](int part) {
            if constexpr (kChunk > 0) {
              if (part == 0) activate_chunk<kChunk - 1>(d, bias[kChunk - 1]);
            }
          });
      first_products<kChunk + 1>(d, bias);
    }
  }
  template <int kChunk>
  __device__ __forceinline__ void second_products(float (&d)[kValues]) {
    if constexpr (kChunk < S::l.own_chunks) {
      this->template multiply<S::l.halves == 2 && kChunk == 0, S::l.output_block + 1 + S::l.own_chunks + kChunk,
                              (kChunk > 0)>(d, hidden_operand(kChunk), [&](int part) {
        if (kChunk == 0 && part == 0) load_vectors(progress / 2 + 1);
      });
      second_products<kChunk + 1>(d);
    }
  }

  // A thread for each token gets what is known of it: finish(token of the CTA, mean, variance).
  template <typename Finish>
  __device__ __forceinline__ void over_tokens(Finish&& finish) const {
    const u32 at = shared_base() + S::l.statistics_at;
    store_moments<typename NormParts<S::c.pre_norm>::type>(x, at + warp() * (8 * S::l.rows));
    meet();
    const int token = split_thread<S>();
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
    normalise_tokens<kKeep>(a, x, tokens + split_thread<S>() % 4 * 16, gain, shift);
  }
  __device__ __forceinline__ void norm(float2 gain, float2 shift) {
    u32 a[kPacked];
    normalise<!S::c.pre_norm>(a, gain, shift);
    store_operand(a, tokens_operand());
    publish();
  }

  __device__ __forceinline__ void first_norm() {
    norm(single(S::l.gain1, &Vectors::gain1), single(S::l.shift1, &Vectors::shift1));
  }
  __device__ __forceinline__ void second_norm() {
    norm(single(S::l.gain2, &Vectors::gain2), single(S::l.shift2, &Vectors::shift2));
  }

  __device__ __forceinline__ void run_layer() {
    if constexpr (S::c.pre_norm) first_norm();
    attention_block();
    if constexpr (S::c.pre_norm) {
      second_norm();
    } else {
      first_norm();
    }
    const float2 gain = single(S::l.gain2, &Vectors::gain2), shift = single(S::l.shift2, &Vectors::shift2);
    if constexpr (S::l.whole_hidden) {
      whole_feed_forward_block();
    } else {
      feed_forward_block();
      load_vectors(progress / 2 + 1);
    }
    if constexpr (S::l.hidden_over_keys) {
      meet();
      tell_senders(barriers::keys_free());
    }
    if constexpr (!S::c.pre_norm) norm(gain, shift);
    progress = progress + 2 ^ 1;
  }

  // --- the ends

  // Of the thread's value x[i]: the token, and the feature.
  __device__ __forceinline__ int token(int i) const {
    return first_token() + i / 4 * 8 + split_thread<S>() % 4 * 2 + i % 2;
  }
  __device__ __forceinline__ int feature(int i) const {
    return 16 * warp() + split_thread<S>() % 32 / 4 + i % 4 / 2 * 8;
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
    const i64 step = p.output_token;
    float* to = p.output + sequence * p.output_sequence + token(0) * step + feature(0);
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kValues; i += 4, to += 8 * step) {
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        if (token(i + next) >= S::c.seq) continue;
        if (S::l.halves == 2 && i / 4 % 2 != static_cast<int>(half<S>())) continue;  // the other one's
        to[next * step] = x[i + next], to[next * step + 8] = x[i + next + 2];
        finite &= is_finite(x[i + next]) && is_finite(x[i + next + 2]);
      }
    }
    if (p.flags && !finite) raise(p.flags, kOutputNotFinite);
  }

  // The grid has no more clusters than there are sequences for: each has a first one.
  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int sequence = block_anew() / S::c.cluster; sequence < p.batch; sequence += blocks_anew() / S::c.cluster) {
      load_vectors(0);
      load(sequence);
      if (sequence == block_anew() / S::c.cluster) meet_cluster<S>();
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
    // No CTA leaves while another may write its memory.
    wait_for_receivers(barriers::keys_taken(), parity() ^ 1);
    if constexpr (S::l.hidden_over_keys) wait_for_receivers(barriers::keys_free(), parity() ^ 1);
  }
};

template <typename S>
__global__ void __cluster_dims__(S::c.cluster, 1, 1) __launch_bounds__(S::l.threads, 1) resident_split(const Call p) {
  if (threadIdx.x % 32 == 0) SplitBarriers<S>::init();
  __syncwarp();
  if constexpr (S::l.early_weights) {
    cluster_arrive_relaxed();
    named_barrier(0, S::l.threads);  // for this CTA's weights its own barriers are enough
  }
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128), 0);  // known to be the warp's
  if (token_rank<S>() >= S::l.used) {
    meet_cluster<S>();
  } else if (group < S::c.groups) {
    if constexpr (S::l.split_registers) take_registers<S::l.registers>();
    Features<S>(p, group).run();
  } else {
    if constexpr (S::l.split_registers) give_registers<kProducerRegisters>();
    const int of = threadIdx.x / 32 - 4 * S::c.groups;
    if constexpr (!S::l.early_weights) meet_cluster<S>();
    if (threadIdx.x % 32 == 0 && of < S::c.groups) SplitProducer<S>(of).run(p);
    if constexpr (S::l.early_weights) {
      __syncwarp();
      meet_cluster<S>();
    }
    if constexpr (S::l.sender) {
      if (of == S::c.groups && SplitBarriers<S>::receivers() > 0) send_keys<S>(p);
    }
  }
}

}  // namespace gnomon::kernels::resident
