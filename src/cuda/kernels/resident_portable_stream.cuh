// The weights' way into a CTA of the portable form: a ring of pieces in shared memory, which the warps that read them
// fill in turn, ahead, by asynchronous copies of 16 bytes. Counters say how far each has come, so that a warp may be
// ahead of another by half of the ring, and its softmax runs under the other's products.
#pragma once

#include "mma.cuh"
#include "progress.cuh"
#include "reduce.cuh"
#include "resident_portable_layout.cuh"
#include "resident_stream.cuh"
#include "resident_tile.cuh"

namespace gnomon::kernels::resident {

// Of each warp: how many pieces there were when the last one that it copied had landed; how many it has read; layers
// whose K and V it has stored, and has read; layers of whose vectors its part has landed.
template <typename S>
struct Counters {
  static __device__ __forceinline__ u32 at(int i) { return shared_base() + S::l.counters_at + 4 * i; }
  static __device__ __forceinline__ u32 landed(int warp) { return at(warp); }
  static __device__ __forceinline__ u32 released(int warp) { return at(S::l.warps + warp); }
  static __device__ __forceinline__ u32 stored(int warp) { return at(2 * S::l.warps + warp); }
  static __device__ __forceinline__ u32 attended(int warp) { return at(3 * S::l.warps + warp); }
  static __device__ __forceinline__ u32 vectors(int warp) { return at(4 * S::l.warps + warp); }

  static __device__ __forceinline__ void init() {
    for (int i = threadIdx.x; i < S::l.counters; i += S::l.threads) publish_progress(at(i), 0);
    for (int i = threadIdx.x; i < S::l.layer_pieces; i += S::l.threads) {
      store_shared(order(i), S::l.piece_at(i) * kPieceBytes);
    }
  }
  // Where a piece lies in its layer: a look is shorter than the reckoning.
  static __device__ __forceinline__ u32 order(int piece) { return shared_base() + S::l.order_at + 4 * piece; }
};

// Read anew wherever it is used: what follows from it, kept through the layers, would be spilled.
__device__ __forceinline__ int lane() { return thread_anew() % 32; }

// By the lanes of a warp: until the counters [first, last] of an array of them have all come that far.
__device__ __forceinline__ void wait_for_all(u32 counters, int first, int last, u32 count) {
  const int i = lane();
  if (i >= first && i <= last) wait_for_progress(counters + 4 * i, count);
  __syncwarp();
}

// What a warp did before it, the others see who see its count.
__device__ __forceinline__ void publish_warp(u32 counter, u32 count) {
  __syncwarp();
  if (lane() == 0) publish_progress(counter, count);
}

// A warp's place in the stream. Piece i is copied by warp i % warps, `ahead` pieces before it reads that piece itself
// and not before every warp is done with the one whose place it takes; that it has landed the warp says some pieces
// later, before it waits for anything else.
template <typename S>
struct PieceStream {
  using counters = Counters<S>;

  const Call& p;
  const int warp;
  u32 total;            // pieces of all rounds
  u32 count = 0;        // read
  u32 layers_done = 0;  // over all rounds
  int layer = 0;        // of this round
  int stage = 0, owner = 0;

  __device__ __forceinline__ PieceStream(const Call& p, int warp) : p(p), warp(warp) {
    const int round = static_cast<int>(gridDim.x) * S::c.groups;
    total = static_cast<u32>((p.batch - first_sequence() + round - 1) / round * p.layers) * S::l.layer_pieces;
  }

  // Of the CTA's, the one that is at work after so many layers, or was a number of layers before: no counter of rounds
  // lives through the layers.
  __device__ __forceinline__ int first_sequence(u32 before = 0) const {
    const u32 rounds = (layers_done - before) / static_cast<u32>(p.layers);
    return static_cast<int>(blockIdx.x + rounds * gridDim.x) * S::c.groups;
  }

  // A warp may be ahead of the slowest by half of the ring; copies get a piece's time or two to land.
  __device__ __forceinline__ int ahead() const { return (p.stages + 1) / 2; }
  __device__ __forceinline__ int flight() const { return p.stages > 4 ? 2 : 1; }

  __device__ __forceinline__ int next_layer() const { return layer + 1 == p.layers ? 0 : layer + 1; }

  // The piece that is so many further on, less than a layer.
  __device__ __forceinline__ void copy_piece(int later) const {
    int i = static_cast<int>(count - layers_done * S::l.layer_pieces) + later, of = layer, at = stage + later;
    if (i >= S::l.layer_pieces) i -= S::l.layer_pieces, of = next_layer();
    if (at >= p.stages) at -= p.stages;
    const u32 chunk = 16 * lane();
    const char* from = static_cast<const char*>(p.weights) + i64{of} * S::l.layer_tiles * S::l.tile_bytes +
                       load_shared(counters::order(i)) + chunk;
    const u32 to = shared_base() + S::l.ring_at + at * kPieceBytes + chunk;
#pragma unroll
    for (int bytes = 0; bytes < kPieceBytes; bytes += 512) copy_async<16>(to + bytes, from + bytes, true);
    commit_copies();
  }

  // This warp's part of a layer's vectors. Of doubled order, pairs that are there twice.
  __device__ __forceinline__ void copy_vectors(int of, u32 buffer) const {
    const float* from = p.vectors + i64{of} * S::l.layer_floats;
    const u32 to = shared_base() + S::l.vectors_at + buffer * S::l.vector_bytes;
    const int first = 32 * warp + lane();
#pragma unroll 1
    for (int i = first; i < S::l.doubled_floats / 2; i += S::l.threads) {
      copy_async<8>(to + 4 * fragment_order(2 * i), from + doubled_order(2 * i), true);
    }
#pragma unroll 1
    for (int i = 4 * first; i < S::l.single_floats; i += 4 * S::l.threads) {
      copy_async<16>(to + 4 * (S::l.doubled_floats + i), from + 2 * S::l.doubled_floats + i, true);
    }
    commit_copies();
  }

  __device__ __forceinline__ void land(u32 counter, u32 count) const {
    wait_copies<0>();
    publish_warp(counter, count);
  }

  // What a warp does for all before it waits for a piece.
  __device__ __forceinline__ void serve() const {
    const u32 landed = count + ahead() - flight(), copied = count + ahead();
    const int until = warp - owner + (warp < owner ? S::l.warps : 0);  // this warp's piece
    if (until == (ahead() - flight()) % S::l.warps && landed >= static_cast<u32>(ahead()) && landed < total) {
      land(counters::landed(warp), landed + 1);
    }
    if (until == ahead() % S::l.warps && copied < total) {
      wait_for_all(counters::released(0), 0, S::l.warps - 1, copied + 1 - p.stages);
      copy_piece(ahead());
    }
  }

  // Before the first piece is read.
  __device__ __forceinline__ void begin() const {
    copy_vectors(0, 0);
    land(counters::vectors(warp), 1);
    for (int piece = warp; piece < ahead() && static_cast<u32>(piece) < total; piece += S::l.warps) {
      copy_piece(piece);
      land(counters::landed(warp), piece + 1);
    }
    serve();
  }

  // The address of the next piece, which is there.
  __device__ __forceinline__ u32 next() const {
    wait_for_progress(counters::landed(owner), count + 1);
    __syncwarp();
    return shared_base() + S::l.ring_at + stage * kPieceBytes;
  }
  __device__ __forceinline__ void release() {
    ++count;
    if (++stage == p.stages) stage = 0;
    if (++owner == S::l.warps) owner = 0;
    publish_warp(counters::released(warp), count);
    serve();
  }

  __device__ __forceinline__ void begin_layer() const {
    wait_for_all(counters::vectors(0), 0, S::l.warps - 1, layers_done + 1);
  }
  // In the middle of a layer, and at its end: the next one's vectors take the place of the last one's, when all warps
  // are in this one.
  __device__ __forceinline__ void fetch_vectors() const {
    wait_for_all(counters::released(0), 0, S::l.warps - 1, layers_done * S::l.layer_pieces + 1);
    copy_vectors(next_layer(), layers_done % 2 ^ 1);
  }
  __device__ __forceinline__ void end_layer() {
    layer = next_layer();
    ++layers_done;
    land(counters::vectors(warp), layers_done + 1);
  }
};

}  // namespace gnomon::kernels::resident
