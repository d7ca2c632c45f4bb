// Where everything lies in the resident stack's portable form. Host and device both read this file: no device code.
#pragma once

#include "resident_layout.cuh"

namespace gnomon::kernels::resident {

constexpr int kPieceBytes = 8192;  // of weights: 64 outputs, 64 inputs, fp16

struct PortableLayout : Packing {
  // A warp holds 16 tokens of a sequence; `groups` sequences share a CTA and its weights.
  int tiles = 0, warps = 0, threads = 0;
  int keys = 0;  // rows of K and V

  // Shared memory, in bytes: for each sequence K, then V, in panels of 64 features; two layers' vectors, all in
  // fragment order; the pieces' order; for each warp a bit for each key; the ring of weights.
  int panel_bytes = 0, kv_bytes = 0, vectors_at = 0, vector_bytes = 0, order_at = 0, masks_at = 0, mask_words = 0,
      ring_at = 0;

  // The vectors of a layer in shared memory, in floats: `paired` are stored twice in device memory (doubled order).
  int at_k = 0, at_v = 0, at_q = 0, at_1 = 0, at_o = 0, at_2 = 0, at_gain1 = 0, at_shift1 = 0, at_gain2 = 0,
      at_shift2 = 0;
  int doubled_floats = 0, single_floats = 0;

  int step = 0;  // pieces between barriers: `cluster` of the choices, which has no other meaning here
  int layer_pieces = 0, parts = 0;  // of the feed-forward block: 64 hidden units each

  GNOMON_ANYWHERE constexpr explicit PortableLayout(const Choices& c) : Packing(c) {
    tiles = (c.seq + 15) / 16;
    warps = c.groups * tiles;
    threads = 32 * warps;
    keys = 16 * tiles;
    step = c.cluster;
    layer_pieces = layer_tiles * units;
    parts = c.hidden / 64;

    panel_bytes = keys * 128;
    kv_bytes = 2 * units * panel_bytes;

    at_k = 0, at_v = c.model, at_q = 2 * c.model, at_1 = 3 * c.model;
    at_o = at_1 + c.hidden;
    at_2 = at_o + c.model;
    at_gain1 = at_2 + c.model, at_shift1 = at_gain1 + c.model;
    at_gain2 = at_shift1 + c.model, at_shift2 = at_gain2 + c.model;
    doubled_floats = at_o, single_floats = 6 * c.model;
    vector_bytes = 4 * (doubled_floats + single_floats);

    vectors_at = c.groups * kv_bytes;
    order_at = vectors_at + 2 * vector_bytes;
    masks_at = order_at + 4 * layer_pieces;
    mask_words = c.masked ? (keys + 31) / 32 : 0;
    ring_at = up(masks_at + 4 * warps * mask_words, 1024);
  }

  // Of the ring, in so much shared memory: a step that is read, one that is there, and one or two on their way; 0: too
  // little.
  GNOMON_ANYWHERE constexpr int pieces_in(int shared_bytes) const {
    const int steps = (shared_bytes - ring_at) / (step * kPieceBytes);
    return steps < 3 ? 0 : steps < 4 ? 3 * step : 4 * step;
  }
  GNOMON_ANYWHERE constexpr int shared_bytes(int pieces) const { return ring_at + pieces * kPieceBytes; }

  // Which of a layer's packed pieces is used as its i-th: K, V, Q by 64 outputs; the output projection by 64 inputs;
  // and by 64 hidden units the feed-forward block's two products, the first one ahead by one.
  GNOMON_ANYWHERE constexpr int piece_at(int i) const {
    const int square = units * units;
    if (i < 3 * square) return i / square * square + i % units * units + i / units % units;
    if (i < 4 * square) return i;
    const int turn = i / units - 4 * units, j = i % units;
    const bool ends = turn == 2 * parts - 1, leads = !ends && (turn == 0 || turn % 2 == 1);
    const int part = leads ? (turn + 1) / 2 : ends ? parts - 1 : turn / 2 - 1;
    const int chunk = 4 * square + part / units * 2 * square, half = part % units;
    return leads ? chunk + j * units + half : chunk + square + half * units + j;
  }
};

// Of a stack with rows of so many features: what the registers of a multiprocessor hold.
GNOMON_ANYWHERE constexpr int most_portable_warps(int model) { return model == 64 ? 12 : 8; }

template <int kSeq, int kModel, int kHeads, int kHidden, bool kCausal, bool kPreNorm, bool kFinalNorm, bool kMasked,
          int kActivation, bool kPairedActivation, int kSequences, int kStep>
struct PortableStack {
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
                             kSequences,
                             kStep};
  static constexpr PortableLayout l{c};
  static_assert(c.model == 64 || c.model == 128, "a row of the residual stream must fit a thread's registers");
  static_assert(l.head == 16 || l.head == 32 || l.head == 64 || l.head == 128, "heads of 16, 32, 64 or 128 features");
  static_assert(c.model % c.heads == 0 && c.hidden % c.model == 0);
  static_assert(l.step == 1 || l.step == l.units, "products take as many pieces in turn as there are units");
  static_assert(c.seq >= 1 && l.warps <= most_portable_warps(c.model), "16 tokens to a warp");
};

}  // namespace gnomon::kernels::resident
