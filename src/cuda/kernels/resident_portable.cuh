// The resident stack for chips without wgmma, from compute capability 8.0 on: the whole forward pass in one kernel,
// with mma.sync and cp.async. A warp holds 16 tokens' residual stream in registers, in fp32, through all layers;
// operands chain through registers from product to product, the heads' outputs and the feed-forward block's hidden
// units too, and only K and V go to shared memory. Every warp reads every weight from a ring there
// (resident_portable_stream.cuh): 512 bytes for two products of 16 x 8 x 16. CTAs take sequences in turn.
#pragma once

#include "resident_portable_attention.cuh"
#include "vec.cuh"

namespace gnomon::kernels::resident {

template <typename S>
struct Tokens {
  static constexpr int kRow = S::c.model / 2;      // floats of the thread's two rows
  static constexpr int kOperand = S::c.model / 4;  // registers of the same as an A operand
  static constexpr int kPart = 32;                 // floats of 64 columns of two rows

  const Call& p;
  const int warp;
  const u32 in_piece;  // lane_in_rows
  PieceStream<S> stream;
  u32 layers_done = 0;  // over all rounds
  float x[kRow];
  u32 first[4][4];  // of the next piece

  __device__ __forceinline__ Tokens(const Call& call, int warp)
      : p(call), warp(warp), in_piece(lane_in_rows()), stream(call) {}

  // Of the warp's sequence in the CTA, and of the warp in it.
  __device__ __forceinline__ int slot() const { return S::c.groups == 1 ? 0 : warp / S::l.tiles; }
  // In a causal stack later tiles see more keys: of the two warps that share a scheduler one has an early tile, one a
  // late one.
  __device__ __forceinline__ int tile() const {
    constexpr int kTiles = S::l.tiles, kPairs = kTiles - 4;
    if constexpr (S::c.groups > 1) return warp % kTiles;
    if constexpr (!S::c.causal || kPairs < 1 || kPairs > 4) return warp;
    return warp < kPairs ? warp : kTiles - 1 + kPairs - warp;
  }
  __device__ __forceinline__ u32 kv() const { return shared_base() + slot() * S::l.kv_bytes; }
  // This thread's part of the layer's vectors, as add_to_rows and its like take it.
  __device__ __forceinline__ u32 vector(int at) const {
    return shared_base() + S::l.vectors_at + layers_done % 2 * S::l.vector_bytes + 4 * at + lane() % 4 * 16;
  }

  // --- products with the streamed weights

  // d += a * W^T for 64 outputs and 64 inputs. beside(k), k < 4, is what else there is to do meanwhile.
  template <typename Beside>
  __device__ __forceinline__ void multiply_piece(float* d, const u32* a, int i, Beside&& beside) {
    const u32 at = stream.at() + in_piece;
    u32 b[2][4][4];
    copy(b[0], first);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k < 3) load_step(b[(k + 1) % 2], at ^ 32 * (k + 1));
      if (k == 0) stream.meet(i);
      if (k == 3) load_step(first, stream.next() + in_piece);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        multiply_accumulate(d + 8 * n, a + 4 * k, b[k % 2][n][0], b[k % 2][n][1]);
        multiply_accumulate(d + 8 * n + 4, a + 4 * k, b[k % 2][n][2], b[k % 2][n][3]);
      }
      beside(k);
    }
  }
  static __device__ __forceinline__ void copy(u32 (&to)[4][4], const u32 (&from)[4][4]) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[n][i] = from[n][i];
    }
  }
  // 64 outputs of 16 inputs.
  static __device__ __forceinline__ void load_step(u32 (&b)[4][4], u32 at) {
#pragma unroll
    for (int n = 0; n < 4; ++n) load_matrices(b[n], at + 2048 * n);
  }

  // 64 outputs of all inputs, from the vector on.
  template <typename Beside>
  __device__ __forceinline__ void multiply_inputs(float (&d)[kPart], const u32 (&a)[kOperand], int bias,
                                                  Beside&& beside) {
    start_rows(d, vector(bias));
#pragma unroll
    for (int unit = 0; unit < S::l.units; ++unit) {
      multiply_piece(d, a + 16 * unit, unit, [&](int k) { beside(4 * unit + k); });
    }
  }

  // x += 64 inputs * W^T: all outputs.
  template <typename Beside>
  __device__ __forceinline__ void multiply_outputs(const u32* a, Beside&& beside) {
#pragma unroll
    for (int unit = 0; unit < S::l.units; ++unit) {
      multiply_piece(x + kPart * unit, a, unit, [&](int k) { beside(4 * unit + k); });
    }
  }

  // d = the vector, in fragment order.
  static __device__ __forceinline__ void start_rows(float (&d)[kPart], u32 vector) {
#pragma unroll
    for (int i = 0; i < kPart; i += 8) {
      const float4 v = shared_floats(vector + 8 * i);
      d[i] = d[i + 2] = v.x, d[i + 1] = d[i + 3] = v.y, d[i + 4] = d[i + 6] = v.z, d[i + 5] = d[i + 7] = v.w;
    }
  }

  // --- attention

  // 64 features of K, or of V, to their panel. A key that nobody sees adds nothing, whatever it holds: 0 * NaN would.
  __device__ __forceinline__ void store_features(const float (&d)[kPart], u32 panel) const {
    u32 a[kPart / 2];
    pack_rows(a, d);
    if constexpr (S::c.masked) {
      const bool valid[2] = {row_valid(0), row_valid(1)};
#pragma unroll
      for (int i = 0; i < kPart / 2; ++i) a[i] = valid[i % 2] ? a[i] : 0;
    }
    const u32 row = 16 * tile() + lane() / 4;
#pragma unroll
    for (int i = 0; i < kPart / 2; ++i) {
      store_shared(panel + swizzle<128>((row + i % 2 * 8) * 128 + i / 2 * 16) + lane() % 4 * 4, a[i]);
    }
  }

  // x += Wo * attention + bo
  __device__ __forceinline__ void attention_block(u32 (&a)[kOperand]) {
    static_assert(S::l.at_k == 0 && S::l.at_v == S::c.model);
#pragma unroll 1
    for (int panel = 0; panel < 2 * S::l.units; ++panel) {  // of K, then of V
      float d[kPart];
      multiply_inputs(d, a, 64 * panel, [](int) {});
      store_features(d, kv() + panel * S::l.panel_bytes);
    }
    // All warps are in this layer, none needs the last one's vectors.
    stream.copy_vectors((layers_done + 1) % static_cast<u32>(p.layers), layers_done % 2 ^ 1);
    u32 q[kOperand];
#pragma unroll
    for (int unit = 0; unit < S::l.units; ++unit) {
      float d[kPart];
      multiply_inputs(d, a, S::l.at_q + 64 * unit, [](int) {});
      pack_rows(q + 16 * unit, d);
    }
    QueryTile<S>{kv(), mask_words(), tile(), {last_key(0), last_key(1)}}.run(q);
    load_step(first, stream.at() + in_piece);  // again: no register of it lives through attention
    add_to_rows(x, vector(S::l.at_o));
#pragma unroll
    for (int unit = 0; unit < S::l.units; ++unit) multiply_outputs(q + 16 * unit, [](int) {});
  }

  // Half of 64 hidden units' activations, in two parts or, in pairs, at once: a step of a product calls it.
  static __device__ __forceinline__ void activate_half(u32* to, float* d, int step) {
    constexpr bool kPaired = S::c.paired_activation;
    constexpr int kHalf = kPart / 2, kValues = kPaired ? kHalf : kHalf / 2;
    if (step % (4 * S::l.units * kValues / kHalf) != 0) return;
    const int first = step / (4 * S::l.units * kValues / kHalf) * kValues;
    activate_rows<S::c.activation, kPaired>(to + first / 2, reinterpret_cast<float(&)[kValues]>(d[first]));
  }

  // x += W2 * act(W1 * a + b1) + b2, by 64 hidden units. Half of their activations are computed under the second
  // product of the units before, half under the first one of those that follow.
  __device__ __forceinline__ void feed_forward_block(const u32 (&a)[kOperand]) {
    constexpr int kHalf = kPart / 2;
    add_to_rows(x, vector(S::l.at_2));
    float d[kPart];
    u32 hidden[kPart / 2];
    multiply_inputs(d, a, S::l.at_1, [](int) {});
    activate_rows<S::c.activation, S::c.paired_activation>(hidden, reinterpret_cast<float(&)[kHalf]>(d));
#pragma unroll 1
    for (int part = 1; part < S::l.parts; ++part) {
      float e[kPart];
      multiply_inputs(e, a, S::l.at_1 + 64 * part, [&](int k) { activate_half(hidden + kHalf / 2, d + kHalf, k); });
      u32 next[kHalf / 2];
      multiply_outputs(hidden, [&](int k) { activate_half(next, e, k); });
#pragma unroll
      for (int i = 0; i < kHalf / 2; ++i) hidden[i] = next[i];
#pragma unroll
      for (int i = kHalf; i < kPart; ++i) d[i] = e[i];
    }
    activate_rows<S::c.activation, S::c.paired_activation>(hidden + kHalf / 2,
                                                           reinterpret_cast<float(&)[kHalf]>(d[kHalf]));
    multiply_outputs(hidden, [](int) {});
  }

  // --- the layer

  __device__ __forceinline__ void norm(int gain, int shift) {
    normalise_rows(x, x, vector(gain), vector(shift), p.eps);
  }
  __device__ __forceinline__ void operand_of(u32 (&a)[kOperand], int gain, int shift) const {
    if constexpr (S::c.pre_norm) {
      float y[kRow];
      normalise_rows(y, x, vector(gain), vector(shift), p.eps);
      pack_rows(a, y);
    } else {
      pack_rows(a, x);
    }
  }

  __device__ __forceinline__ void layer() {
    u32 a[kOperand];
    operand_of(a, S::l.at_gain1, S::l.at_shift1);
    attention_block(a);
    if constexpr (!S::c.pre_norm) norm(S::l.at_gain1, S::l.at_shift1);
    operand_of(a, S::l.at_gain2, S::l.at_shift2);
    feed_forward_block(a);
    if constexpr (!S::c.pre_norm) norm(S::l.at_gain2, S::l.at_shift2);
    ++layers_done;
  }

  // --- the ends

  __device__ __forceinline__ int token(int row) const { return 16 * tile() + lane() / 4 + 8 * row; }
  // Of the thread's value x[i], counted from its first one.
  static __device__ __forceinline__ int column(int i) { return i / 4 * 8 + i % 2; }
  static __device__ __forceinline__ int first_column() { return lane() % 4 * 2; }
  __device__ __forceinline__ int last_key(int row) const {
    return (S::c.causal && token(row) < S::c.seq ? token(row) : S::c.seq - 1) - first_column();
  }

  // Rows that do not exist are zero: finite in every layer.
  __device__ __forceinline__ void load(int sequence) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool there = sequence < p.batch && token(r) < S::c.seq;
      const float* row = p.input + sequence * p.input_sequence + token(r) * p.input_token + first_column();
#pragma unroll
      for (int i = 2 * r; i < kRow; i += 4) load_pair(x[i], x[i + 1], row + column(i), there);
    }
  }

  // Raises a flag for each row whose root mean square is outside the range, but for zeros that the mask leaves out.
  __device__ __forceinline__ void check_range(int sequence) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float squares = 0;
#pragma unroll
      for (int i = 2 * r; i < kRow; i += 4) squares += x[i] * x[i] + x[i + 1] * x[i + 1];
      const float size = square_root(sum_lanes<4>(squares) / S::c.model);
      bool empty_padding = false;
      if constexpr (S::c.masked) empty_padding = size == 0 && !row_valid(r);
      const bool inside = size >= p.range[0] && size <= p.range[1];  // NaN is not
      if (sequence < p.batch && token(r) < S::c.seq && !inside && !empty_padding) raise(p.flags, kOutsideRange);
    }
  }

  __device__ __forceinline__ void store(int sequence) const {
    bool finite = true;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (sequence >= p.batch || token(r) >= S::c.seq) continue;
      float* row = p.output + sequence * p.output_sequence + token(r) * p.output_token + first_column();
#pragma unroll
      for (int i = 2 * r; i < kRow; i += 4) {
        *reinterpret_cast<float2*>(row + column(i)) = float2{x[i], x[i + 1]};
        finite &= is_finite(x[i]) && is_finite(x[i + 1]);
      }
    }
    if (p.flags && !finite) raise(p.flags, kOutputNotFinite);
  }

  // A bit for each key, a copy for each warp.
  __device__ __forceinline__ u32 mask_words() const {
    return shared_base() + S::l.masks_at + 4 * warp * S::l.mask_words;
  }
  __device__ __forceinline__ void read_mask(int sequence) const {
    const int lane = resident::lane();
    __syncwarp();
#pragma unroll 1
    for (int w = 0; w < S::l.mask_words; ++w) {
      const int key = 32 * w + lane;
      const bool valid =
          sequence < p.batch && key < S::c.seq && p.mask.data[sequence * p.mask.sequence + key * p.mask.token] != 0;
      const u32 word = __ballot_sync(kAllLanes, valid);
      if (lane == 0) store_shared(mask_words() + 4 * w, word);
    }
    __syncwarp();
  }
  __device__ __forceinline__ bool row_valid(int row) const {
    return load_shared(mask_words() + token(row) / 32 * 4) >> token(row) % 32 & 1;
  }

  __device__ __forceinline__ void final_norm() {
    float mean[2], inverse[2];
    row_statistics(x, p.eps, mean, inverse);
#pragma unroll
    for (int i = 0; i < kRow; ++i) {
      const int r = i % 4 / 2, at = first_column() + column(i);
      const float shift = p.final_shift ? p.final_shift[at] : 0.0f;
      x[i] = (x[i] - mean[r]) * inverse[r] * p.final_gain[at] + shift;
    }
  }

  // The warp's, that is at work after so many layers: no counter of rounds lives through the layers.
  __device__ __forceinline__ int sequence(u32 layers) const {
    const u32 round = layers / static_cast<u32>(p.layers);
    return static_cast<int>(blockIdx.x + round * gridDim.x) * S::c.groups + slot();
  }

  // The grid has no more CTAs than there are sequences for: each has a first round.
  __device__ __forceinline__ void run() {
    stream.begin();
    load_step(first, stream.at() + in_piece);
#pragma unroll 1
    do {
      load(sequence(layers_done));
      if constexpr (S::c.masked) read_mask(sequence(layers_done));
      if (p.range) check_range(sequence(layers_done));
#pragma unroll 1
      do layer();
      while (layers_done % p.layers != 0);
      if constexpr (S::c.final_norm) final_norm();
      store(sequence(layers_done - 1));
    } while (sequence(layers_done) - slot() < p.batch);  // alike in the whole CTA
    wait_copies<0>();
  }
};

template <typename S>
__global__ void __launch_bounds__(S::l.threads, 1) resident_portable(const Call p) {
  Tokens<S>(p, __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 32), 0)).run();  // known to be the warp's
}

}  // namespace gnomon::kernels::resident
