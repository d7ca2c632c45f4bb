// What all forms of attention share: which keys a block may meet, where a head lies, and tiles of shared memory.
#pragma once

#include "memory.cuh"
#include "mma.cuh"
#include "reduce.cuh"
#include "vec.cuh"

namespace gnomon::kernels {

// Rows of kWidth elements (a multiple of 16), 16 bytes apart more than they are long: the eight rows that one fragment
// load touches then lie in different banks, for an odd number of 16-byte units is between them.
template <int kWidth>
constexpr int kTileStride = kWidth + 8;

// Which keys a block may meet. Valid ones are inside [first, end); where there are holes, the bitmap knows them.
struct VisibleKeys {
  int first, end;
  const u32* bitmap;  // of the sequence; null: no holes

  __device__ __forceinline__ bool holds(int key) const {
    return key >= first && key < end && (!bitmap || (bitmap[key / 32] >> key % 32 & 1));
  }
};

template <bool kMasked>
__device__ __forceinline__ VisibleKeys visible_keys(const Attention& p, i64 b) {
  if constexpr (kMasked) {
    const SequenceKeys s = p.keys[b];
    return {s.first, s.end, s.count == s.end - s.first ? nullptr : p.bitmap + b * p.words};
  } else {
    return {0, static_cast<int>(p.seq), nullptr};
  }
}

template <typename T>
struct Head {
  const T *q, *k, *v;
  T* out;
};

template <typename T, int kHeadDim>
__device__ __forceinline__ Head<T> head_of(const Attention& p, i64 b, int h) {
  const i64 token = b * p.seq, column = i64{h} * kHeadDim;
  return {static_cast<const T*>(p.q) + token * p.q_row + column, static_cast<const T*>(p.k) + token * p.k_row + column,
          static_cast<const T*>(p.v) + token * p.v_row + column, static_cast<T*>(p.out) + token * p.out_row + column};
}

// Rows [row0, row0 + rows) of a head to a tile. Rows that `there` denies, and the columns that pad head_dim, become 0:
// what lies in masked keys (NaN even) meets neither product.
template <typename T, int kHeadDim, int kCopyBytes, int kThreads, typename There>
__device__ __forceinline__ void fill_tile(T* tile, const T* from, i64 from_stride, int row0, int rows, There&& there) {
  constexpr int kWidth = round_up(kHeadDim, 16);
  constexpr int kPer = kCopyBytes / static_cast<int>(sizeof(T));  // elements of one copy
  constexpr int kCopies = kWidth / kPer;
  static_assert(kHeadDim % kPer == 0);
  const auto copy = [&](int row, int column, const T* source, T* to) {
    const bool real = column < kHeadDim && there(row0 + row);
    if constexpr (kCopyBytes >= 4) {
      copy_async<kCopyBytes>(shared_address(to), real ? source : from, real);
    } else {
      *to = real ? *source : T{};
    }
  };
  // Not unrolled: the addresses of all copies would stay in registers for as long as the kernel runs.
  if constexpr (kThreads % kCopies == 0) {  // a thread stays in its column
    constexpr int kStep = kThreads / kCopies;
    int row = static_cast<int>(threadIdx.x) / kCopies;
    const int column = static_cast<int>(threadIdx.x) % kCopies * kPer;
    const T* source = from + (row0 + row) * from_stride + column;
    T* to = tile + row * kTileStride<kWidth> + column;
#pragma unroll 1
    for (; row < rows; row += kStep) {
      copy(row, column, source, to);
      source += kStep * from_stride;
      to += kStep * kTileStride<kWidth>;
    }
  } else {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < rows * kCopies; i += kThreads) {
      const int row = i / kCopies, column = i % kCopies * kPer;
      copy(row, column, from + (row0 + row) * from_stride + column, tile + row * kTileStride<kWidth> + column);
    }
  }
}

// A weight of 0 does not hide a value that is not finite: 0 * NaN is NaN. Under the diagonal of a causal stack a row
// could meet so what only later rows see. Rows are therefore done without a thought of it, and where an output is not
// finite the block is done again: such values are then taken out of the diagonal's tiles and added to the rows that see
// them.
template <typename T, int kWidth, int kThreads>
__device__ __forceinline__ void clear_not_finite(T* tile, int rows) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * kTileStride<kWidth>; i += kThreads) {
    if (!is_finite(to_float(tile[i]))) tile[i] = T{};
  }
}

// A warp's finished rows, from its tile to the caller's layout: rows that exist, columns that are no padding.
template <typename T, int kHeadDim, int kCopyBytes>
__device__ __forceinline__ void store_head_rows(T* to, i64 to_stride, const T* tile, int row0, int rows, int seq) {
  constexpr int kPer = kCopyBytes / static_cast<int>(sizeof(T));
  constexpr int kCopies = kHeadDim / kPer;
  struct alignas(kCopyBytes) Piece {
    T at[kPer];
  };
  for (int i = static_cast<int>(threadIdx.x % 32); i < rows * kCopies; i += 32) {
    const int row = i / kCopies, column = i % kCopies * kPer;
    if (row0 + row >= seq) break;
    *reinterpret_cast<Piece*>(to + (row0 + row) * to_stride + column) =
        *reinterpret_cast<const Piece*>(tile + row * kTileStride<round_up(kHeadDim, 16)> + column);
  }
}

}  // namespace gnomon::kernels
