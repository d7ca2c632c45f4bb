// What is fixed when the wide form of the resident kernel is compiled. The two CTAs of a cluster share a sequence: each
// has all tokens and half of the features, of the heads and of the hidden units. Host and device both read this file:
// no device code in it.
#pragma once

#include "resident_layout.cuh"

namespace gnomon::kernels::resident {

constexpr int kWideModel = 512;  // eight panels of features are the eight tiles of a product
constexpr int kWideHead = 64;    // a head is a panel
constexpr int kWideMostRows = 104;

// The least N of a product that the kernel instantiates and that `seq` tokens fit; 0: there is none.
GNOMON_ANYWHERE constexpr int wide_rows(int seq) {
  constexpr int kRows[] = {64, 72, 80, 96, kWideMostRows};
  for (const int rows : kRows) {
    if (seq <= rows) return rows;
  }
  return 0;
}

struct WideLayout : Packing {
  int rows = 0;         // tokens: the N of the products
  int panels = 0;       // of 64 features each, in a CTA's half
  int steps = 0;        // of the feed-forward block: 256 hidden units each, 64 of each warpgroup
  int token_warps = 0;  // that have a token for each of their lanes, the last one for some

  // Shared memory, in bytes. The operand of the products: a panel of all tokens for each 64 features, this CTA's half
  // first. Four panels that both CTAs exchange, two of this one's warpgroups and two of the other's: heads' outputs,
  // then hidden units; before these, K and V of a head of each warpgroup. The ring of weights: a stage is a warpgroup's
  // [64 outputs][64]. Statistics of tokens: over this CTA's features, over the other's, and what comes of both; rows
  // that nobody reads; the mask's bits; barriers.
  int panel_bytes = 0, exchange_at = 0, ring_at = 0, stages = 0, stage_bytes = 0, moments_at = 0, other_moments_at = 0,
      tokens_at = 0, unread_at = 0, masks_at = 0, barriers_at = 0, shared_bytes = 0;

  static constexpr int kGroups = 2;       // warpgroups that compute
  static constexpr int kGroupStages = 4;  // a product reads eight tiles: two rounds of these
  static constexpr int threads = 128 * (kGroups + 1), kRegisters = 240;

  GNOMON_ANYWHERE constexpr explicit WideLayout(const Choices& c) : Packing(c) {
    rows = wide_rows(c.seq);
    panels = c.model / 128;
    steps = c.hidden / 256;
    token_warps = (rows + 31) / 32;
    panel_bytes = rows * 128;
    exchange_at = 2 * panels * panel_bytes;
    ring_at = exchange_at + 4 * panel_bytes;
    stages = kGroups * kGroupStages;
    stage_bytes = 64 * 64 * 2;
    moments_at = ring_at + stages * stage_bytes;
    other_moments_at = moments_at + 8 * rows;
    tokens_at = other_moments_at + 8 * rows;
    unread_at = tokens_at + 8 * rows;
    masks_at = unread_at + 8 * 128;
    barriers_at = masks_at + 16;
    shared_bytes = barriers_at + 8 * (2 * stages + 5 + kGroups);
  }
};

// A stack as a type, as `Stack` is for the first form.
template <int kSeq, int kModel, int kHeads, int kHidden, bool kCausal, bool kPreNorm, bool kFinalNorm, bool kMasked,
          int kActivation>
struct WideStack {
  static constexpr Choices c{
      kSeq,  kModel, kHeads, kHidden, kCausal, kPreNorm, kFinalNorm, kMasked, static_cast<Activation>(kActivation),
      false, 2,      2};
  static constexpr WideLayout l{c};
  static_assert(c.model == kWideModel && l.head == kWideHead);
  static_assert(c.hidden % 512 == 0, "an even number of steps, after which all parities are what they were");
  static_assert(l.rows > 0 && l.shared_bytes <= kMostShared);
};

}  // namespace gnomon::kernels::resident
