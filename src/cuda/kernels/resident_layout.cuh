// What is fixed when the resident kernel is compiled: the stack's shape, how it is cut into tiles of 64 tokens, and
// where everything lies. Host and device both read this file: no device code in it.
#pragma once

#include "params.cuh"

#ifdef __CUDACC__
#define GNOMON_ANYWHERE __host__ __device__
#else
#define GNOMON_ANYWHERE
#endif

namespace gnomon::kernels::resident {

enum class Activation { gelu, gelu_tanh, relu };

struct Choices {
  int seq, model, heads, hidden;
  bool causal, pre_norm, final_norm, masked;
  Activation activation;
  bool paired_activation;  // in fp16, two at a time
  int groups;              // warpgroups of a CTA, each with 64 tokens (split: each with 64 features)
  int cluster;             // CTAs that share one stream of weights (split: one sequence)
};

constexpr int kMostShared = 232448;     // 227 KiB: all that a block may have on Hopper
constexpr int kProducerRegisters = 24;  // of a thread, where a whole warpgroup produces

GNOMON_ANYWHERE constexpr int up(int n, int unit) { return (n + unit - 1) / unit * unit; }

// How a layer's weights are packed: the same for all forms of the kernel.
struct Packing {
  int head = 0;

  // Weights come as blocks of [model][model] fp16, in tiles of [model][64]: K, V, Q, the output projection, then in
  // turn the two products of the feed-forward block, for `model` hidden units at a time.
  int units = 0, chunks = 0, layer_tiles = 0, tile_bytes = 0;

  // The vectors of a layer, in floats: what accumulators start from in doubled order, the rest in fragment order.
  int bias_k = 0, bias_v = 0, bias_q = 0, bias_1 = 0, bias_o = 0, bias_2 = 0, gain1 = 0, shift1 = 0, gain2 = 0,
      shift2 = 0, layer_floats = 0;

  GNOMON_ANYWHERE constexpr explicit Packing(const Choices& c) {
    head = c.model / c.heads;
    units = c.model / 64;
    chunks = c.hidden / c.model;
    layer_tiles = (4 + 2 * chunks) * units;
    tile_bytes = 128 * c.model;

    bias_k = 0, bias_v = 2 * c.model, bias_q = 4 * c.model, bias_1 = 6 * c.model;
    bias_o = bias_1 + 2 * c.hidden;
    bias_2 = bias_o + c.model;
    gain1 = bias_2 + c.model, shift1 = gain1 + c.model;
    gain2 = shift1 + c.model, shift2 = gain2 + c.model;
    layer_floats = shift2 + c.model;
  }
};

// What the weights' packing is instantiated with.
template <int kModel, int kHeads, int kHidden, int kActivation>
struct Packed {
  static constexpr Choices c{
      0, kModel, kHeads, kHidden, false, false, false, false, static_cast<Activation>(kActivation), false, 0, 0};
  static constexpr Packing l{c};
};

struct Layout : Packing {
  // A sequence is `tiles` tiles of 64 tokens, one to a warpgroup; the warpgroups of a cluster are dealt to sequences in
  // order.
  int tiles = 0;
  int sequences = 0;        // of a cluster
  int local_sequences = 0;  // whose keys a CTA holds
  int keys = 0;             // rows of K and V, zero-padded
  int keys_seen[2]{};       // by the rows of a tile
  int tile_keys[2]{};       // of a tile

  // K and V lie in panels of at most 64 features: rows of 32, 64 or 128 bytes.
  int panel_features = 0, panel_row_bytes = 0, panel_bytes = 0;
  int panels = 0;  // of K; as many of V follow

  // A panel of ones beside V, of whose product with the weights a row's sum comes: where no mask leaves a row without
  // keys, and heads' outputs all have their registers.
  bool summed = false;
  int ones_at = 0, ones_bytes = 0;

  // Shared memory, in bytes: K and V; ones; for each warpgroup Q, then the heads' outputs; two layers' vectors from
  // `first_vector` on; the ring of
  // weights; barriers; for each warp, the 128 bits of its sequence's mask.
  int kv_bytes = 0, queries_at = 0, queries_bytes = 0, vectors_at = 0, vector_stages = 0, ring_at = 0, stages = 0,
      barriers_at = 0, masks_at = 0, shared_bytes = 0;
  int first_vector = 0, vector_bytes = 0;
  int ready_barriers = 0, barriers = 0;

  // Steps of 64 hidden units in the order in which their weights come: as many as are unrolled, those of a whole
  // feed-forward block if it has eight at most.
  int steps = 0, steps_together = 0;

  // A warp scheduler has 512 registers a lane for its warps. With two warpgroups the producer must be a whole third
  // one, for only a warpgroup can hand its registers over; one warpgroup has all it can address beside a single warp.
  bool split_registers = false;
  int threads = 0;

  GNOMON_ANYWHERE constexpr explicit Layout(const Choices& c) : Packing(c) {
    tiles = (c.seq + 63) / 64;
    sequences = c.cluster * c.groups / tiles;
    local_sequences = c.groups < tiles ? 1 : c.groups / tiles;
    keys = up(c.seq, 16);
    for (int t = 0; t < 2; ++t) {
      keys_seen[t] = c.causal && 64 * (t + 1) < keys ? 64 * (t + 1) : keys;
      tile_keys[t] = keys - 64 * t < 64 ? keys - 64 * t : 64;
    }

    panel_features = head < 64 ? head : 64;
    panel_row_bytes = 2 * panel_features;
    panel_bytes = keys * panel_row_bytes;
    panels = c.model / panel_features;

    kv_bytes = local_sequences * 2 * panels * panel_bytes;
    summed = c.causal && !c.masked && c.groups == 2 && tiles == 2 && keys <= 112 && (head == 32 || head == 64);
    ones_at = up(kv_bytes, 1024), ones_bytes = summed ? panel_bytes : 0;
    queries_at = up(ones_at + ones_bytes, 1024);
    queries_bytes = 128 * c.model;
    vectors_at = queries_at + c.groups * queries_bytes;
    vector_stages = 2;
    first_vector = summed ? bias_v : 0, vector_bytes = 4 * (layer_floats - first_vector);
    ring_at = up(vectors_at + vector_stages * vector_bytes, 1024);
    ready_barriers = c.groups < tiles ? tiles : c.groups;
    const int other_barriers = layer_tiles + 2 * vector_stages + ready_barriers + c.groups;
    const int mask_bytes = c.groups * 4 * 16, barrier_bytes = up(8 * (other_barriers + 16) + mask_bytes, 128);
    stages = (kMostShared - ring_at - barrier_bytes) / tile_bytes;
    if (stages > 16) stages = 16;
    if (stages > layer_tiles) stages = layer_tiles;
    barriers = other_barriers + stages;
    barriers_at = ring_at + stages * tile_bytes;
    masks_at = barriers_at + barrier_bytes - mask_bytes;
    shared_bytes = barriers_at + barrier_bytes;
    steps = c.hidden / 64;
    steps_together = steps < 8 ? steps : 8;
    while (steps % steps_together != 0) --steps_together;

    split_registers = c.groups > 1;
    threads = 128 * c.groups + (split_registers ? 128 : 32);
  }
};

// A stack as a type: what kernels are instantiated with.
template <int kSeq, int kModel, int kHeads, int kHidden, bool kCausal, bool kPreNorm, bool kFinalNorm, bool kMasked,
          int kActivation, bool kPairedActivation, int kGroups, int kCluster>
struct Stack {
  static constexpr Choices c{kSeq,
                             kModel,
                             kHeads,
                             kHidden,
                             kCausal,
                             kPreNorm,
                             kFinalNorm,
                             kMasked,
                             static_cast<Activation>(kActivation),
                             kPairedActivation,
                             kGroups,
                             kCluster};
  static constexpr Layout l{c};
  static_assert(c.model == 64 || c.model == 128, "a row of the residual stream must fit a thread's registers");
  static_assert(l.head == 16 || l.head == 32 || l.head == 64 || l.head == 128, "heads of 16, 32, 64 or 128 features");
  static_assert(c.model % c.heads == 0 && c.hidden % c.model == 0);
  static_assert(c.seq >= 1 && c.seq <= 128, "scores of at most 128 keys fit a thread's registers");
  static_assert(c.cluster * c.groups % l.tiles == 0 && (c.groups % l.tiles == 0 || c.groups == 1),
                "whole sequences for a cluster");
  static_assert(l.stages >= 4, "too little shared memory is left for the weights on their way");
};

// What a launch is given. Weights are packed by `pack_layer`.
struct Call {
  const float* input;  // rows of `model` adjacent elements, each aligned to 8 bytes, as are the output's
  float* output;
  i64 input_sequence, input_token, output_sequence, output_token;  // elements from one to the next
  MaskBytes mask;
  const void* weights;   // [layers][layer_tiles][tile_bytes]
  const float* vectors;  // [layers][layer_floats]
  const float *final_gain, *final_shift;
  const float* range;  // {least, greatest} root mean square of an input row; null: unchecked
  u32* flags;          // CallFlags; null: unchecked
  i32 batch, layers;
  float eps;
  i32 stages;  // of the portable form's ring, as many as the device has room for
};

// fp32, weights [outputs][inputs]; a null bias or shift is zero.
struct PackLayer {
  const float *q, *k, *v, *o, *w1, *w2;
  const float *bias_q, *bias_k, *bias_v, *bias_o, *bias_1, *bias_2;
  const float *gain1, *shift1, *gain2, *shift2;
  void* tiles;
  float* vectors;
};

}  // namespace gnomon::kernels::resident
