// Attention of the portable form: a warp's 16 queries of a head, in registers, against the keys of its sequence in
// shared memory, 32 at a time, with a softmax that goes along.
#pragma once

#include "resident_portable_stream.cuh"

namespace gnomon::kernels::resident {

// d[16][8] += a * b on registers that lie in larger arrays.
__device__ __forceinline__ void multiply_accumulate(float* d, const u32* a, u32 b0, u32 b1) {
  mma_16x8x16<f16>(reinterpret_cast<float(&)[4]>(*d), reinterpret_cast<const u32(&)[4]>(*a), b0, b1);
}

// Where a lane finds its row of the four 8x8 matrices of 16 rows and 16 columns in a panel: rows of 128 bytes whose
// 16-byte chunks are swizzled (wgmma_operand.cuh). Columns further on: `at ^ 2 * column`. As a product's B whose rows
// are its N, the matrices are (row block, column block) = 00 01 10 11; where they are its K, read transposed, 00 10 01
// 11: either way two registers for each 8 of N.
__device__ __forceinline__ u32 lane_in_rows() {
  const u32 i = lane();
  return swizzle<128>((i / 16 * 8 + i % 8) * 128 + i / 8 % 2 * 16);
}
__device__ __forceinline__ u32 lane_in_columns() {
  const u32 i = lane();
  return swizzle<128>(i % 16 * 128 + i / 16 * 16);
}

// Of a row: the greatest score so far, and the sum of weights, each lane's own.
struct RunningRows {
  float largest[2], sums[2];
};

template <typename S>
struct QueryTile {
  static constexpr int kBlock = S::l.head > 64 ? 16 : 32;  // keys at a time
  static constexpr int kTogether =
      S::l.head <= 32 && S::c.heads > 1 && S::l.warps <= 8 ? 2 : 1;  // heads whose latencies hide each other

  u32 kv;    // of the sequence
  u32 mask;  // words of the sequence, where there are any
  int tile;
  int last[2];  // key that a row may see, counted from the thread's first column

  static __device__ __forceinline__ u32 panel(int feature) { return feature / 64 * S::l.panel_bytes; }
  static constexpr u32 kValues = S::l.units * S::l.panel_bytes;

  // Keys are met 16 at a time. For those that no row of the tile may see, and those that do not exist, the last ones
  // stand in, hidden: what a weight of 0 meets should be finite.
  __device__ __forceinline__ int last_group() const { return S::c.causal ? tile : S::l.tiles - 1; }
  __device__ __forceinline__ u32 group_row(int block, int group) const {
    return min(block * (kBlock / 16) + group, last_group()) * (16 * 128);
  }

  __device__ __forceinline__ void score(float (&s)[kBlock / 2], const u32* q, int head, int block, u32 keys) const {
#pragma unroll
    for (float& value : s) value = 0;
#pragma unroll
    for (int group = 0; group < kBlock / 16; ++group) {
#pragma unroll
      for (int f = 0; f < S::l.head; f += 16) {
        const int feature = head * S::l.head + f;
        u32 k[4];
        load_matrices(k, panel(feature) + group_row(block, group) + (keys ^ feature % 64 * 2));
        multiply_accumulate(s + 8 * group, q + f / 4, k[0], k[1]);
        multiply_accumulate(s + 8 * group + 4, q + f / 4, k[2], k[3]);
      }
    }
  }

  __device__ __forceinline__ void hide(float (&s)[kBlock / 2], int block) const {
    u32 valid = ~0u;
    if constexpr (S::c.masked)
      valid = load_shared(mask + kBlock * block / 32 * 4) >> kBlock * block % 32 + lane() % 4 * 2;
#pragma unroll
    for (int i = 0; i < kBlock / 2; ++i) {
      const int column = i / 4 * 8 + i % 2;
      const bool seen = kBlock * block + column <= last[i % 4 / 2] && (!S::c.masked || (valid >> column & 1));
      if (!seen) s[i] = __int_as_float(0xff800000);
    }
  }

  // Scores become weights; what was summed before shrinks where a greater score came.
  static __device__ __forceinline__ void weights_of(float (&s)[kBlock / 2], RunningRows& rows,
                                                    float (&o)[S::l.head / 2]) {
    const float kHidden = __int_as_float(0xff800000);
    float shift[2], factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = rows.largest[r];
#pragma unroll
      for (int i = 2 * r; i < kBlock / 2; i += 4) largest = fmaxf(largest, fmaxf(s[i], s[i + 1]));
      largest = max_lanes<4>(largest);
      shift[r] = largest == kHidden ? 0 : largest;
      factor[r] = exp2_fast(rows.largest[r] - shift[r]);
      rows.largest[r] = largest;
      rows.sums[r] *= factor[r];
    }
#pragma unroll
    for (int i = 0; i < kBlock / 2; ++i) {
      s[i] = exp2_fast(s[i] - shift[i % 4 / 2]);
      rows.sums[i % 4 / 2] += s[i];
    }
    scale_rows(o, factor);
  }

  __device__ __forceinline__ void weigh(float (&o)[S::l.head / 2], const u32* p, int head, int block,
                                        u32 values) const {
#pragma unroll
    for (int group = 0; group < kBlock / 16; ++group) {
#pragma unroll
      for (int f = 0; f < S::l.head; f += 16) {
        const int feature = head * S::l.head + f;
        u32 v[4];
        load_matrices_transposed(v, panel(feature) + group_row(block, group) + (values ^ feature % 64 * 2));
        multiply_accumulate(o + f / 2, p + 4 * group, v[0], v[1]);
        multiply_accumulate(o + f / 2 + 4, p + 4 * group, v[2], v[3]);
      }
    }
  }

  // Each head's output replaces its queries, as the A operand of the next product.
  __device__ __forceinline__ void run(u32 (&q)[S::c.model / 4]) const {
    const int blocks = ceil_div(last_group() + 1, kBlock / 16);
    const u32 keys = kv + lane_in_rows(), values = kv + kValues + lane_in_columns();
#pragma unroll
    for (int first = 0; first < S::c.heads; first += kTogether) {
      float o[kTogether][S::l.head / 2] = {};
      RunningRows rows[kTogether];
#pragma unroll
      for (RunningRows& r : rows) {
        r = {{__int_as_float(0xff800000), __int_as_float(0xff800000)}, {0, 0}};
      }
#pragma unroll 1
      for (int block = 0; block < blocks; ++block) {
        float s[kTogether][kBlock / 2];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) score(s[i], q + (first + i) * (S::l.head / 4), first + i, block, keys);
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          hide(s[i], block);
          weights_of(s[i], rows[i], o[i]);
          u32 p[kBlock / 4];
          pack_rows(p, s[i]);
          weigh(o[i], p, first + i, block, values);
        }
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        float inverse[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float sum = sum_lanes<4>(rows[i].sums[r]);
          inverse[r] = sum == 0 ? 0.0f : __fdividef(1.0f, sum);
        }
        scale_rows(o[i], inverse);
        pack_rows(q + (first + i) * (S::l.head / 4), o[i]);
      }
    }
  }
};

}  // namespace gnomon::kernels::resident
