// What is fixed when the split form of the resident kernel is compiled. A sequence's tokens are dealt to the CTAs of a
// cluster, and in a CTA the features to its warpgroups, 64 to each. Host and device both read this file: no device code
// in it.
#pragma once

#include "resident_layout.cuh"

namespace gnomon::kernels::resident {

// Of the choices, `groups` is the number of warpgroups, `cluster` of the CTAs that share a sequence.
struct SplitLayout : Packing {
  // A cluster of sixteen are eight pairs. A pair's CTAs have the same tokens, and half of the heads and of the hidden
  // units each: half of the weights. What comes of these they exchange and add up, twice a layer.
  int halves = 1;
  int sharers = 0;      // CTAs or pairs that tokens are dealt to
  int own_chunks = 0;   // of hidden units, a CTA's
  int rows = 0;         // tokens of a CTA: the N of its products
  int used = 0;         // CTAs that have tokens: the last ones of a cluster may have none
  int keys = 0;         // rows of K and V
  int key_block = 0;    // keys that a row tile meets at a time
  int plain_block = 0;  // the same where no largest score is kept
  bool plain = false;   // this is tried first; where registers are short, not with a mask: they would be spilled
  int key_bytes = 0;    // of K or V: a key's features

  // Shared memory, in bytes. K, then V, of the whole sequence, for 16 keys at a time a panel for each 64 features, so
  // that a CTA's are one copy; the operand of the products: normalised tokens; operands of hidden units, of all of them
  // or of two chunks, which lie over K and V where there is no other room; Q, then the heads' outputs, over the first
  // of these or else over the tokens; statistics of each warp's features, then of whole tokens; the mask's bits;
  // barriers; the ring of weights. A stage of the ring is a warpgroup's part of a tile: [64 outputs][64].
  int values_at = 0, operand_at = 0, operand_bytes = 0, hidden_at = 0, queries_at = 0, statistics_at = 0, tokens_at = 0,
      masks_at = 0, barriers_at = 0, ring_at = 0, stages = 0, stage_bytes = 0, shared_bytes = 0;
  bool hidden_over_keys = false;
  bool whole_hidden = false;  // all chunks have their operand: the first products run one after another

  // Tiles of a layer that a warpgroup reads, and how many of its stages it has. Where these go into a layer's tiles,
  // and no loop is in the way, the compiler knows each tile's stage.
  int group_tiles = 0, group_stages = 0;
  int output_block = 0;  // the output projection, of a warpgroup's blocks: behind K, V, Q, or in a pair K or V, Q
  bool known_stages = false;
  // Where hidden units lie over K and V and one operand of theirs leaves room there, the feed-forward block has these
  // stages too, of each warpgroup, so that a block of weights is a round of its stages.
  int more_at = 0, more_stages = 0;
  bool early_weights = false;  // they start before the cluster has met: where they are more urgent than the input
  bool look_ahead = false;     // for a tile, under the product before it
  bool vectors_ahead = false;  // a layer's are loaded under the layer before

  // Warps that attend to the same heads, and the row tiles of these heads. Where tiles are fewer than warps, two share
  // a tile's keys and one leaves its part for the other; where they are more, a warp takes two of a head together.
  int attending = 0, row_tiles = 0, tiles_together = 0, partials_at = 0;
  bool share_keys = false;
  int parts = 1, part_keys = 0, partial_bytes = 0;  // of the keys, each a warp's; what a part gives to the first

  // The other half's sums, in fp16: behind attention, then behind the feed-forward block.
  int sums_at = 0, sums_bytes = 0;

  // K and V are sent by a warp that has nothing else to do, where there is one: asking for a copy takes a while.
  bool sender = false;

  // As in `Layout`: a whole warpgroup for the producer hands its registers over.
  bool split_registers = false;
  int threads = 0, registers = 0;  // of a thread that computes

  GNOMON_ANYWHERE constexpr explicit SplitLayout(const Choices& c) : Packing(c) {
    halves = c.cluster > 8 ? 2 : 1, sharers = c.cluster / halves, own_chunks = chunks / halves;
    rows = up((c.seq + sharers - 1) / sharers, 16);
    used = (c.seq + rows - 1) / rows;
    keys = up(c.seq, 16);
    split_registers = c.groups > 1;
    sender = used > 1 && c.groups == 2;
    threads = 128 * c.groups + (split_registers ? 128 : 32);
    // The block has what its launch gave each thread, an eighth's multiple of a scheduler's 512: no more can be
    // claimed.
    const int launched = 512 / (c.groups + 1) / 8 * 8;
    registers = c.groups == 1 ? 240 : ((c.groups + 1) * launched - kProducerRegisters) / c.groups / 8 * 8;
    // What a thread holds of x and of a head's output leaves so many registers for scores.
    const int left = registers - rows / 2 - head / 2;
    key_block = left >= 120 ? 64 : left >= 80 ? 32 : 16;
    plain_block = key_block > 16 ? key_block : 32;
    plain = registers >= 128 || !c.masked;

    stage_bytes = 64 * 64 * 2;
    key_bytes = 2 * c.model / halves;
    values_at = keys * key_bytes;
    operand_at = 2 * values_at;
    operand_bytes = 2 * rows * c.model;
    output_block = halves == 2 ? 2 : 3;
    group_tiles = units * (output_block + 1 + 2 * own_chunks);
    early_weights = c.cluster >= 8;
    look_ahead = registers >= 128 && rows <= 64;
    vectors_ahead = look_ahead && chunks <= 8;
    attending = head > 64 || halves == 2 ? 4 * c.groups : 4;
    row_tiles = attending * (c.heads / halves) / (4 * c.groups) * (rows / 16);
    const bool room = registers - rows / 2 - head - key_block >= 50;  // for both tiles' outputs and scores
    tiles_together = row_tiles > attending && row_tiles <= 2 * attending && key_block == 64 && room ? 2 : 1;
    share_keys = 2 * row_tiles <= attending && rows == 16 && keys > 16 && registers >= 128;
    if (share_keys) {
      const int most = halves == 2 && 4 * row_tiles <= attending ? 4 : 2;
      part_keys = up((keys + most - 1) / most, 16), parts = (keys + part_keys - 1) / part_keys;
      partial_bytes = 32 * 4 * (head / 2 + 4);
    }
    if (halves == 2) sums_bytes = 2 * rows * c.model;
    constexpr int kComfortable = 12;  // stages: what is on its way covers a microsecond
    if (two_accumulators() && chunks > 1) place(c, false, own_chunks);
    if (stages < 8) place(c, false, 2);
    if (stages < (whole_hidden ? 8 : kComfortable)) place(c, true, 2);
  }

  // A product's accumulators are read under the next product.
  GNOMON_ANYWHERE constexpr bool two_accumulators() const { return rows * 3 / 2 + rows / 4 + 40 <= registers; }

 private:
  GNOMON_ANYWHERE constexpr void place(const Choices& c, bool over_keys, int hidden_operands) {
    hidden_over_keys = over_keys;
    whole_hidden = hidden_operands == own_chunks && chunks > 1 && !over_keys && two_accumulators();
    hidden_at = over_keys ? 0 : operand_at + operand_bytes;
    queries_at = over_keys ? operand_at : hidden_at;
    statistics_at = operand_at + (over_keys ? 1 : 1 + hidden_operands) * operand_bytes;
    tokens_at = statistics_at + 4 * c.groups * rows * 8;
    masks_at = tokens_at + rows * 8;
    partials_at = masks_at + up(keys, 128) / 8;
    barriers_at = partials_at + (share_keys ? 4 * c.groups / attending * row_tiles * (parts - 1) * partial_bytes : 0);
    const int most_barrier_bytes = 8 * (2 * kMostStages + 6 + 17);
    sums_at = up(barriers_at + most_barrier_bytes, 16);
    ring_at = up(sums_at + 2 * sums_bytes, 1024);
    stages = ring_at > kMostShared ? 0 : (kMostShared - ring_at) / stage_bytes;
    if (stages > kMostStages) stages = kMostStages;
    group_stages = stages / c.groups;  // each warpgroup's are a ring of their own: tiles may arrive out of order
    int even = group_stages;
    while (even > 2 && group_tiles % even != 0) --even;
    known_stages = even >= (halves == 2 ? 5 : 2) && group_tiles % even == 0 && (whole_hidden || units % even == 0);
    if (known_stages) group_stages = even;
    if (over_keys && known_stages && group_stages == 2 && units == 4) {
      const int at = hidden_at + operand_bytes;  // one operand of hidden units instead of two
      if (at + c.groups * 2 * stage_bytes <= 2 * values_at) more_at = at, more_stages = 2;
    }
    stages = group_stages * c.groups;
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
  static_assert(l.halves == 1 || (c.model == 128 && c.heads % 2 == 0 && l.chunks % 2 == 0 && l.rows == 16 &&
                                  l.whole_hidden && l.vectors_ahead));
  static_assert(l.rows <= 128, "a thread's registers hold two features of at most 128 tokens");
  static_assert(l.stages >= 2 * c.groups, "too little shared memory is left for the weights on their way");
};

}  // namespace gnomon::kernels::resident
