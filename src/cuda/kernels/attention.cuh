// Attention of 16-bit Q, K and V on any device from compute capability 8.0. Two forms:
//   attention_whole     a block holds all keys of a head: short sequences, everything on chip, one wait for memory.
//   attention_streamed  tiles of keys pass by, the next one on its way while one is worked on: any length.
// Both number their blocks in x alone, and read Q, K and V from rows of any stride (three tensors, or one of [T, 3d]).
#pragma once

#include "attention_rows.cuh"

namespace gnomon::kernels {

// Decides how many blocks of a multiprocessor the compiler must leave registers for. Short sequences live on occupancy,
// and small tiles fit in 96 or 128 registers a thread (a mask takes some more); larger ones get what they ask for, or
// they would spill (the compile test looks).
template <int kHeadDim, int kRowTiles, int kKeys, bool kMasked = false>
constexpr int kTileRegisters = WarpRows<f16, kHeadDim, kRowTiles, kKeys, true, kMasked>::kTileRegisters +
                               (kMasked ? 16 : 0);

// Block i: query tile `n_tiles - 1 - i % n_tiles` (in a causal stack the longest work starts first) of head i /
// n_tiles.
template <typename T, int kHeadDim, int kWarps, int kRowTiles, int kKeys, bool kCausal, bool kMasked, int kCopyBytes>
__global__ void __launch_bounds__(kWarps * 32,
                                  kTileRegisters<kHeadDim, kRowTiles, kKeys, kMasked> <= 64 ? 16 / kWarps : 1)
    attention_streamed(const Attention p) {
  constexpr int kThreads = kWarps * 32;
  constexpr int kRows = kWarps * kRowTiles * 16;
  constexpr int kStride = kTileStride<round_up(kHeadDim, 16)>;
  extern __shared__ __align__(128) unsigned char shared[];
  T* const q_tile = reinterpret_cast<T*>(shared);
  T* const kv_tiles = q_tile + kRows * kStride;  // [stage][k or v][kKeys][kStride]

  const int seq = static_cast<int>(p.seq);
  const u32 n_tiles = static_cast<u32>((seq + kRows - 1) / kRows);
  const u32 unit = blockIdx.x / n_tiles;
  const int row0 = static_cast<int>(n_tiles - 1 - blockIdx.x % n_tiles) * kRows;
  const i64 b = unit / static_cast<u32>(p.heads);
  const Head<T> head = head_of<T, kHeadDim>(p, b, static_cast<int>(unit % static_cast<u32>(p.heads)));
  const VisibleKeys keys = visible_keys<kMasked>(p, b);

  const int begin = kMasked ? keys.first / kKeys * kKeys : 0;
  const int end = kCausal ? min(keys.end, row0 + kRows) : keys.end;
  const int warp_row0 = row0 + static_cast<int>(threadIdx.x / 32) * kRowTiles * 16;

  const auto fill = [&](int key0) {
    T* tile = kv_tiles + (key0 - begin) / kKeys % 2 * (2 * kKeys * kStride);
    const auto there = [&](int key) { return kMasked ? keys.holds(key) : key < seq; };
    fill_tile<T, kHeadDim, kCopyBytes, kThreads>(tile, head.k, p.k_row, key0, kKeys, there);
    fill_tile<T, kHeadDim, kCopyBytes, kThreads>(tile + kKeys * kStride, head.v, p.v_row, key0, kKeys, there);
    commit_copies();
  };
  T* const warp_rows = q_tile + (warp_row0 - row0) * kStride;
  WarpRows<T, kHeadDim, kRowTiles, kKeys, kCausal, kMasked> rows;
  for (int careful = 0; careful < (kCausal ? 2 : 1); ++careful) {
    fill_tile<T, kHeadDim, kCopyBytes, kThreads>(q_tile, head.q, p.q_row, row0, kRows,
                                                 [&](int row) { return row < seq; });
    fill(begin);
    wait_copies<0>();
    __syncthreads();
    rows.start(warp_rows);
    for (int key0 = begin; key0 < end; key0 += kKeys) {
      if (key0 != begin) {
        wait_copies<0>();
        __syncthreads();  // this tile is there, and nobody reads the one before any more
      }
      if (key0 + kKeys < end) fill(key0 + kKeys);
      T* tile = kv_tiles + (key0 - begin) / kKeys % 2 * (2 * kKeys * kStride);
      const bool diagonal = kCausal && key0 + kKeys > row0;
      if (careful && diagonal) {
        clear_not_finite<T, round_up(kHeadDim, 16), kThreads>(tile + kKeys * kStride, kKeys);
        __syncthreads();
      }
      const int seen = kCausal ? min(end, warp_row0 + kRowTiles * 16) - key0 : end - key0;
      const int groups = min(kKeys, seen + 15) / 16;
      if (groups <= 0) continue;
      rows.template meet<false>(tile, tile + kKeys * kStride, warp_row0, key0, groups, keys, p.scale);
      if (careful && diagonal) rows.add_not_finite(head.v, p.v_row, warp_row0, key0, min(kKeys, seen), keys);
    }
    if (kCausal && !__syncthreads_or(!rows.all_finite())) break;
  }
  rows.finish(warp_rows);
  store_head_rows<T, kHeadDim, kCopyBytes>(head.out, p.out_row, warp_rows, warp_row0, kRowTiles * 16, seq);
}

// The forms that hold all keys of a head. Item i is part i % kParts of head i / kParts; its Q, K and V lie one after
// the other in `tiles`. The warps share the head's tiles of 16 rows: in a causal stack row tile r meets r + 1 groups of
// keys, so they are dealt out forwards and backwards in turn, and all warps get alike.
template <typename T, int kHeadDim, int kWarps, int kParts, int kKeys, bool kCausal, bool kMasked, int kCopyBytes>
struct WholeHead {
  static_assert(kKeys <= 64);  // a tile must meet exactly the groups that are there
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kStride = kTileStride<round_up(kHeadDim, 16)>;

  static __device__ __forceinline__ int row_tiles(const Attention& p) { return (static_cast<int>(p.seq) + 15) / 16; }
  static __device__ __forceinline__ int tile_elements(const Attention& p) { return row_tiles(p) * 16 * kStride; }
  static __device__ __forceinline__ i64 sequence_of(const Attention& p, u32 item) {
    return item / kParts / static_cast<u32>(p.heads);
  }
  static __device__ __forceinline__ Head<T> head_at(const Attention& p, u32 item) {
    const int h = static_cast<int>(item / kParts % static_cast<u32>(p.heads));
    return head_of<T, kHeadDim>(p, sequence_of(p, item), h);
  }

  static __device__ __forceinline__ void fill(const Attention& p, u32 item, T* tiles) {
    const Head<T> head = head_at(p, item);
    const VisibleKeys keys = visible_keys<kMasked>(p, sequence_of(p, item));
    const int seq = static_cast<int>(p.seq), rows = row_tiles(p) * 16, size = tile_elements(p);
    const auto there = [&](int key) { return kMasked ? keys.holds(key) : key < seq; };
    const auto real = [&](int row) { return row < seq; };
    fill_tile<T, kHeadDim, kCopyBytes, kThreads>(tiles, head.q, p.q_row, 0, rows, real);
    fill_tile<T, kHeadDim, kCopyBytes, kThreads>(tiles + size, head.k, p.k_row, 0, rows, there);
    fill_tile<T, kHeadDim, kCopyBytes, kThreads>(tiles + 2 * size, head.v, p.v_row, 0, rows, there);
    commit_copies();
  }

  // True when all outputs of this warp are finite.
  static __device__ __forceinline__ bool attend(const Attention& p, u32 item, T* tiles, bool careful) {
    const Head<T> head = head_at(p, item);
    const VisibleKeys keys = visible_keys<kMasked>(p, sequence_of(p, item));
    const int worker = static_cast<int>(item % kParts) * kWarps + static_cast<int>(threadIdx.x / 32);
    const T* const k_tile = tiles + tile_elements(p);
    const T* const v_tile = k_tile + tile_elements(p);
    bool finite = true;
    for (int round = 0; round * kParts * kWarps < row_tiles(p); ++round) {
      const int turn = round % 2 ? kParts * kWarps - 1 - worker : worker;
      const int dealt = round * kParts * kWarps + turn;
      if (dealt >= row_tiles(p)) continue;
      const int row0 = (row_tiles(p) - 1 - dealt) * 16;
      T* const tile_rows = tiles + row0 * kStride;
      WarpRows<T, kHeadDim, 1, kKeys, kCausal, kMasked> rows;
      rows.start(tile_rows);
      const int end = kCausal ? min(keys.end, row0 + 16) : keys.end;
      const auto groups = [&](int key0) { return min(kKeys, end - key0 + 15) / 16; };
      int key0 = kMasked ? keys.first / kKeys * kKeys : 0;
      if (key0 < end) {
        rows.template meet<true>(k_tile + key0 * kStride, v_tile + key0 * kStride, row0, key0, groups(key0), keys,
                                 p.scale);
      }
      for (key0 += kKeys; key0 < end; key0 += kKeys) {
        rows.template meet<false>(k_tile + key0 * kStride, v_tile + key0 * kStride, row0, key0, groups(key0), keys,
                                  p.scale);
      }
      if (careful) rows.add_not_finite(head.v, p.v_row, row0, 0, end, keys);
      if (kCausal) finite &= rows.all_finite();
      rows.finish(tile_rows);
      store_head_rows<T, kHeadDim, kCopyBytes>(head.out, p.out_row, tile_rows, row0, 16, static_cast<int>(p.seq));
    }
    return finite;
  }

  // One item whose rows are there: done, and where an output is not finite done again with care.
  static __device__ __forceinline__ void finish(const Attention& p, u32 item, T* tiles) {
#pragma unroll 1
    for (int careful = 0; careful < (kCausal ? 2 : 1); ++careful) {
      if (careful) {
        fill(p, item, tiles);
        wait_copies<0>();
        __syncthreads();
        clear_not_finite<T, round_up(kHeadDim, 16), kThreads>(tiles + 2 * tile_elements(p), row_tiles(p) * 16);
        __syncthreads();
      }
      const bool finite = attend(p, item, tiles, careful);
      if (kCausal && !__syncthreads_or(!finite)) break;
    }
  }
};

// A block an item.
template <typename T, int kHeadDim, int kWarps, int kParts, int kKeys, bool kCausal, bool kMasked, int kCopyBytes>
__global__ void __launch_bounds__(kWarps * 32, kTileRegisters<kHeadDim, 1, kKeys, kMasked> <= 40   ? 20 / kWarps
                                               : kTileRegisters<kHeadDim, 1, kKeys, kMasked> <= 64 ? 16 / kWarps
                                                                                                   : 1)
    attention_whole(const Attention p) {
  using Item = WholeHead<T, kHeadDim, kWarps, kParts, kKeys, kCausal, kMasked, kCopyBytes>;
  extern __shared__ __align__(128) unsigned char shared[];
  T* const tiles = reinterpret_cast<T*>(shared);
  Item::fill(p, blockIdx.x, tiles);
  wait_copies<0>();
  __syncthreads();
  Item::finish(p, blockIdx.x, tiles);
}

}  // namespace gnomon::kernels
