// The whole forward pass of a small stack in one kernel. A warpgroup holds 64 tokens' residual stream in registers, in
// fp32, through all layers; the feed-forward block's products chain through registers, as Q and the heads' outputs do
// where there is room, K and V through shared memory, and nothing of a layer goes to device memory. Weights stream past
// (resident_stream.cuh). A grid of clusters takes sequences in turn.
#pragma once

#include "resident_attention.cuh"

namespace gnomon::kernels::resident {

// Of a thread, when there are three warpgroups: 2 * 240 + 24 of the 512 that each lane of a scheduler has.
constexpr int kConsumerRegisters = 240;

// One warpgroup's 64 tokens, through all layers.
template <typename S>
struct Group : GroupAttention<S> {
  using Base = GroupAttention<S>;
  using Base::kOperand, Base::kRow, Base::column, Base::first_column, Base::first_slot, Base::read_mask,
      Base::row_valid, Base::stream, Base::token, Base::x, Base::attention_block;

  __device__ __forceinline__ explicit Group(int group) : Base(group) {}

  // d += W1 * a, of 64 hidden units: a tile holds their rows, in parts of 64 columns.
  __device__ __forceinline__ void multiply_step(float (&d)[32], const u32 (&a)[kOperand], int tile) {
    wgmma::settle(d);
    const u64 weights = stream.next_tile(tile);
    wgmma::begin();
#pragma unroll
    for (int k = 0; k < S::c.model / 16; ++k) {
      wgmma::multiply<true, false>(d, a + 4 * k, further(weights, k / 4 * (64 * 128) + k % 4 * 32));
    }
  }

  // x += W2 * act(W1 * a + b1) + b2, by steps of 64 hidden units. While one step's are activated, the next one's sums
  // and the last one's second product are computed. The assembler does not see through a loop which product is waited
  // for, and would run them one by one: between rounds none runs.
  __device__ __forceinline__ void feed_forward_block(const u32 (&a)[kOperand], u32 vectors) {
    constexpr int kSteps = S::l.steps_together;
    u32 biases = vectors + 4 * S::l.bias_1;
#pragma unroll 1
    for (int round = 0; round < S::l.steps / kSteps; ++round) {
      const int first = 4 * S::l.units + round * 2 * kSteps;  // of the round's tiles
      float d[2][32];
      u32 hidden[2][16];
      wgmma::settle(x);
#pragma unroll
      for (int i = 0; i < kSteps && i < 2; ++i) {
        set_rows(d[i], biases + 512 * i);
        multiply_step(d[i], a, first + i);
        wgmma::commit();
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const bool more = i + 2 < kSteps;
        const int tile = first + (kSteps == 1 ? 1 : i + 1 < kSteps ? 2 + 2 * i : 1 + 2 * i);  // of the second product
        kSteps > 1 ? wgmma::wait<1>() : wgmma::wait<0>();
        wgmma::settle(d[i % 2]);
        stream.release_tile();
        if (i >= 2) stream.release_tile();
        activate_step(hidden[i % 2], d[i % 2], biases + 512 * (i + 2), more);
        const u64 weights = stream.next_tile(tile);
        wgmma::begin();
#pragma unroll
        for (int k = 0; k < 4; ++k) wgmma::multiply<true, false>(x, hidden[i % 2] + 4 * k, further(weights, k * 32));
        if (more) multiply_step(d[i % 2], a, tile + 1);
        wgmma::commit();
      }
      wgmma::wait<0>();
      wgmma::settle(x);
      stream.release_tile();
      if (kSteps > 1) stream.release_tile();
      biases += 512 * kSteps;
    }
    add_to_rows(x, vectors + 4 * S::l.bias_2);
  }

  // The activations of d, into whose registers the biases of the step after next are loaded as early as it is free.
  static __device__ __forceinline__ void activate_step(u32 (&hidden)[16], float (&d)[32], u32 biases, bool more) {
    if constexpr (S::c.paired_activation) {
      pack_rows(hidden, d);
      if (more) set_rows(d, biases);
      activate_pairs<S::c.activation>(hidden);
      wgmma::settle<16>(hidden);
    } else {
      activate_rows<S::c.activation, false>(hidden, d);
      if (more) set_rows(d, biases);
    }
  }

  __device__ __forceinline__ void norm(u32 vectors, int gain, int shift, float eps) {
    normalise_rows(x, x, vectors + 4 * gain, vectors + 4 * shift, eps);
  }

  __device__ __forceinline__ void operand_of(u32 (&a)[kOperand], u32 vectors, int gain, int shift, float eps) const {
    if constexpr (S::c.pre_norm) {
      float y[kRow];
      normalise_rows(y, x, vectors + 4 * gain, vectors + 4 * shift, eps);
      pack_rows(a, y);
    } else {
      pack_rows(a, x);
    }
  }

  __device__ __forceinline__ void layer(float eps) {
    const u32 vectors = stream.next_vectors();
    u32 a[kOperand];
    operand_of(a, vectors, S::l.gain1, S::l.shift1, eps);
    attention_block(a, vectors);
    if constexpr (!S::c.pre_norm) norm(vectors, S::l.gain1, S::l.shift1, eps);
    operand_of(a, vectors, S::l.gain2, S::l.shift2, eps);
    feed_forward_block(a, vectors);
    if constexpr (!S::c.pre_norm) norm(vectors, S::l.gain2, S::l.shift2, eps);
    stream.end_layer();
  }

  // --- the ends

  // Rows that do not exist are zero: finite in every layer.
  __device__ __forceinline__ void load(const Call& p, int sequence) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool there = sequence < p.batch && token(r) < S::c.seq;
      const float* row = p.input + sequence * p.input_sequence + token(r) * p.input_token + first_column();
#pragma unroll
      for (int i = 2 * r; i < kRow; i += 4) {
        load_pair(x[i], x[i + 1], row + column(i), there);
      }
    }
  }

  // Raises a flag for each row whose root mean square is outside the range, but for zeros that the mask leaves out.
  __device__ __forceinline__ void check_range(const Call& p, int sequence) const {
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

  __device__ __forceinline__ void store(const Call& p, int sequence) const {
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

  __device__ __forceinline__ void final_norm(const Call& p) {
    float mean[2], inverse[2];
    row_statistics(x, p.eps, mean, inverse);
    const int first = first_column();
#pragma unroll
    for (int i = 0; i < kRow; ++i) {
      const int r = i % 4 / 2;
      const float shift = p.final_shift ? p.final_shift[first + column(i)] : 0.0f;
      x[i] = (x[i] - mean[r]) * inverse[r] * p.final_gain[first + column(i)] + shift;
    }
  }

  // The sequence that is at work after so many layers, counted over all rounds: no counter lives through the layers.
  __device__ __forceinline__ int sequence(const Call& p, u32 layers) const {
    const int round = static_cast<int>(layers / static_cast<u32>(p.layers));
    return first_sequence<S>() + first_slot() / S::l.tiles + round * round_sequences<S>();
  }

  // A grid has no more clusters than there are sequences for: each has a first round.
  __device__ __forceinline__ void run(const Call& p) {
    do {
      load(p, sequence(p, stream.layers));
      if (stream.layers == 0) cluster_barrier_relaxed();
      if constexpr (S::c.masked) read_mask(p.mask, sequence(p, stream.layers), sequence(p, stream.layers) < p.batch);
      if (p.range) check_range(p, sequence(p, stream.layers));
      do layer(p.eps);
      while (stream.layers % p.layers != 0);
      if constexpr (S::c.final_norm) final_norm(p);
      store(p, sequence(p, stream.layers - 1));
    } while (sequence(p, stream.layers) - first_slot() / S::l.tiles < p.batch);  // alike in the whole cluster
  }
};

template <typename S>
__global__ void __cluster_dims__(S::c.cluster, 1, 1) __launch_bounds__(S::l.threads, 1) resident_stack(const Call p) {
  if (threadIdx.x % 32 == 0) Barriers<S>::init();
  if constexpr (S::l.summed) {
    for (int i = threadIdx.x; i < S::l.ones_bytes / 4; i += S::l.threads) {
      store_shared(shared_base() + S::l.ones_at + 4 * i, pack2<f16>(1, 1));
    }
    publish_shared_writes();
    named_barrier(0, S::l.threads);
  }
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128), 0);  // known to be the warp's
  if (group < S::c.groups) {
    if constexpr (S::l.split_registers) take_registers<kConsumerRegisters>();
    Group<S>(group).run(p);
  } else {
    if constexpr (S::l.split_registers) give_registers<kProducerRegisters>();
    cluster_barrier_relaxed();
    if (threadIdx.x == 128 * S::c.groups) Producer<S>().run(p);
  }
  cluster_barrier();  // no CTA leaves while another may write its memory
}

}  // namespace gnomon::kernels::resident
