// What is fixed when the split form of the resident kernel is compiled. A sequence's tokens are dealt to the CTAs of a
// cluster, and in a CTA the features to its warpgroups, 64 to each. Host and device both read this file: no device code
// in it.
#pragma once

#include "resident_layout.cuh"

namespace gnomon::kernels::resident {

// Of the choices, `groups` is the number of warpgroups, `cluster` of the CTAs that share a sequence.
struct SplitLayout : Packing {
  int rows = 0;       // tokens of a CTA: the N of its products
  int used = 0;       // CTAs that have tokens: the last ones of a cluster may have none
  int keys = 0;       // rows of K and V
  int key_block = 0;  // keys that a row tile meets at a time
  int row_bytes = 0;  // of K or V: all heads

  // Shared memory, in bytes. K, then V, of the whole sequence; the operand of the products: normalised tokens, then Q,
  // then the heads' outputs; two operands of hidden units, where there is no room for them over K and V; statistics of
  // each warp's features, then of whole tokens; the mask's bits; barriers; the ring of weights. A stage of the ring is
  // a warpgroup's part of a tile: [64 outputs][64].
  int values_at = 0, operand_at = 0, operand_bytes = 0, hidden_at = 0, statistics_at = 0, tokens_at = 0, masks_at = 0,
      barriers_at = 0, ring_at = 0, stages = 0, stage_bytes = 0, shared_bytes = 0;
  bool hidden_over_keys = false;

  // As in `Layout`: a whole warpgroup for the producer hands its registers over.
  bool split_registers = false;
  int threads = 0, registers = 0;  // of a thread that computes

  GNOMON_ANYWHERE constexpr explicit SplitLayout(const Choices& c) : Packing(c) {
    rows = up((c.seq + c.cluster - 1) / c.cluster, 16);
    used = (c.seq + rows - 1) / rows;
    keys = up(c.seq, 16);
    split_registers = c.groups > 1;
    threads = 128 * c.groups + (split_registers ? 128 : 32);
    // The block has what its launch gave each thread, an eighth's multiple of a scheduler's 512: no more can be
    // claimed.
    const int launched = 512 / (c.groups + 1) / 8 * 8;
    registers = c.groups == 1 ? 240 : ((c.groups + 1) * launched - kProducerRegisters) / c.groups / 8 * 8;
    row_bytes = 2 * c.model;
    // What a thread holds of x and of a head's output leaves so many registers for scores.
    const int left = registers - rows / 2 - head / 2;
    key_block = left >= 120 ? 64 : left >= 80 ? 32 : 16;

    values_at = keys * row_bytes;
    operand_at = 2 * values_at;
    operand_bytes = rows * row_bytes;
    stage_bytes = 64 * 64 * 2;
    constexpr int kComfortable = 12;  // stages: what is on its way covers a microsecond
    place(c, false);
    if (stages < kComfortable) place(c, true);
  }

 private:
  GNOMON_ANYWHERE constexpr void place(const Choices& c, bool over_keys) {
    hidden_over_keys = over_keys;
    hidden_at = over_keys ? 0 : operand_at + operand_bytes;
    statistics_at = operand_at + (over_keys ? 1 : 3) * operand_bytes;
    tokens_at = statistics_at + 4 * c.groups * rows * 8;
    masks_at = tokens_at + rows * 8;
    barriers_at = masks_at + up(keys, 128) / 8;
    const int most_barrier_bytes = 8 * (2 * kMostStages + 4);
    ring_at = up(barriers_at + most_barrier_bytes, 1024);
    stages = ring_at > kMostShared ? 0 : (kMostShared - ring_at) / stage_bytes;
    if (stages > kMostStages) stages = kMostStages;
    stages -= stages % c.groups;  // each warpgroup's are a ring of their own: tiles may arrive out of order
    shared_bytes = ring_at + stages * stage_bytes;
  }
  static constexpr int kMostStages = 32;
};

// A stack as a type, as `Stack` is for the other form.
template <int kSeq, int kModel, int kHeads, int kHidden, bool kCausal, bool kPreNorm, bool kFinalNorm, bool kMasked,
          int kActivation, int kCluster>
struct SplitStack {
  static constexpr Choices c{kSeq,       kModel,      kHeads,
                             kHidden,    kCausal,     kPreNorm,
                             kFinalNorm, kMasked,     static_cast<Activation>(kActivation),
                             false,      kModel / 64, kCluster};
  static constexpr SplitLayout l{c};
  static_assert(c.model == 64 || c.model == 128 || c.model == 256, "a warpgroup for each 64 features");
  static_assert(l.head == 16 || l.head == 32 || l.head == 64 || l.head == 128, "heads of 16, 32, 64 or 128 features");
  static_assert(c.model % c.heads == 0 && c.hidden % c.model == 0);
  static_assert(l.rows <= 128, "a thread's registers hold two features of at most 128 tokens");
  static_assert(l.stages >= 2 * c.groups, "too little shared memory is left for the weights on their way");
};

}  // namespace gnomon::kernels::resident
