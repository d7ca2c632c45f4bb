// The weights' way into a CTA of the portable form: a ring of pieces in shared memory, which all warps read in step and
// fill together, ahead, by asynchronous copies of 16 bytes. One barrier a step says that its pieces are there, that the
// place of those before is free, and orders everything else that warps tell each other.
#pragma once

#include "mma.cuh"
#include "reduce.cuh"
#include "resident_portable_layout.cuh"
#include "resident_stream.cuh"
#include "resident_tile.cuh"

namespace gnomon::kernels::resident {

// Read anew wherever it is used: what follows from it, kept through the layers, would be spilled.
__device__ __forceinline__ int lane() { return thread_anew() % 32; }

template <typename S>
struct PieceStream {
  static constexpr int kTogether = S::c.cluster;  // pieces of a step

  const Call& p;
  const char* from;  // this thread's first chunk of the layer that is copied
  int stage = 0;     // of the ring: what is read
  int piece = 0;     // what is copied next
  int layer = 0;     // of this layer

  __device__ __forceinline__ explicit PieceStream(const Call& p)
      : p(p), from(static_cast<const char*>(p.weights) + 16 * thread_anew()) {}

  static __device__ __forceinline__ u32 order(int piece) { return shared_base() + S::l.order_at + 4 * piece; }

  __device__ __forceinline__ void copy_step(int to_stage) {
    const u32 at = 16 * thread_anew(), to = shared_base() + S::l.ring_at + to_stage * kPieceBytes + at;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const char* source = from + load_shared(order(piece + i));
#pragma unroll
      for (int bytes = 0; bytes < kPieceBytes; bytes += 16 * S::l.threads) {
        if (bytes + 16 * S::l.threads <= kPieceBytes || bytes + at < kPieceBytes) {
          copy_async<16>(to + i * kPieceBytes + bytes, source + bytes, true);
        }
      }
    }
    commit_copies();
    piece += kTogether;
    if (piece == S::l.layer_pieces) {
      constexpr int kLayer = S::l.layer_tiles * S::l.tile_bytes;
      const bool last = layer + 1 == p.layers;
      piece = 0, layer = last ? 0 : layer + 1;
      from += last ? i64{1 - p.layers} * kLayer : i64{kLayer};
    }
  }

  // Of doubled order, pairs that are there twice. They join the next step's copies.
  __device__ __forceinline__ void copy_vectors(u32 of, u32 buffer) const {
    const float* vectors = p.vectors + i64{of} * S::l.layer_floats;
    const u32 to = shared_base() + S::l.vectors_at + buffer * S::l.vector_bytes;
#pragma unroll 1
    for (int i = thread_anew(); i < S::l.doubled_floats / 2; i += S::l.threads) {
      copy_async<8>(to + 4 * fragment_order(2 * i), vectors + doubled_order(2 * i), true);
    }
#pragma unroll 1
    for (int i = 4 * thread_anew(); i < S::l.single_floats; i += 4 * S::l.threads) {
      copy_async<16>(to + 4 * (S::l.doubled_floats + i), vectors + 2 * S::l.doubled_floats + i, true);
    }
  }

  // The first layer's vectors and the first step are there, and all but one step of the ring on its way.
  __device__ __forceinline__ void begin() {
    for (int i = thread_anew(); i < S::l.layer_pieces; i += S::l.threads) {
      store_shared(order(i), S::l.piece_at(i) * kPieceBytes);
    }
    __syncthreads();
    copy_vectors(0, 0);
#pragma unroll 1
    for (int i = 0; i < p.stages - kTogether; i += kTogether) copy_step(i);
    wait_copies<0>();
    __syncthreads();
  }

  __device__ __forceinline__ u32 at() const { return shared_base() + S::l.ring_at + stage * kPieceBytes; }
  __device__ __forceinline__ u32 next() {
    if (++stage == p.stages) stage = 0;
    return at();
  }

  // Every warp comes here while it reads a piece, the i-th of those that are used in turn, when its first loads are on
  // their way: the next step is there, and the last one's place is free. Copies go on after the last layer, with the
  // first.
  __device__ __forceinline__ void meet(int i) {
    if (i % kTogether != 0) return;
    if (p.stages == 3 * kTogether) {
      wait_copies<0>();
    } else {
      wait_copies<1>();
    }
    __syncthreads();
    copy_step((stage == 0 ? p.stages : stage) - kTogether);
  }
};

}  // namespace gnomon::kernels::resident
