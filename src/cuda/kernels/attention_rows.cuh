// A warp's rows against tiles of keys, on 16-bit tensor cores. The scores of a tile live in registers only; the softmax
// is taken online, in powers of two.
#pragma once

#include "attention_tile.cuh"

namespace gnomon::kernels {

// One warp's kRowTiles * 16 rows: queries in registers, running maximum, sum and output.
template <typename T, int kHeadDim, int kRowTiles, int kKeys, bool kCausal, bool kMasked>
struct WarpRows {
  static constexpr int kWidth = round_up(kHeadDim, 16);
  static constexpr int kStride = kTileStride<kWidth>;
  static constexpr int kGroups = kKeys / 16;
  // In registers where that leaves room for the output; else they are loaded from their tile for each tile of keys.
  static constexpr bool kKeepQueries = kWidth <= 128 && (kRowTiles == 1 || kKeys >= 64);
  static constexpr int kTileRegisters = kRowTiles * (kKeys / 2 + kWidth / 2 + (kKeepQueries ? kWidth / 4 : 0));
  static_assert(kKeys % 32 == 0);

  u32 q[kRowTiles][kKeepQueries ? kWidth / 16 : 1][4];
  float o[kRowTiles][kWidth / 8][4];
  // Of rows g and g + 8. The sums are a product of the weights with a column of ones (0 and 2 are read): the tensor
  // cores have time for it, the adders have not, and it adds what the output adds, the rounded weights.
  float greatest[kRowTiles][2], sum[kRowTiles][4];
  u32 q_address;

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ __forceinline__ void start(const T* q_rows) {
    q_address = shared_address(q_rows + lane() % 16 * kStride + lane() / 16 * 8);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      if constexpr (kKeepQueries) {
#pragma unroll
        for (int k = 0; k < kWidth / 16; ++k) load_matrices(q[r][k], q_address + (r * 16 * kStride + k * 16) * 2);
      }
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[r][n][i] = 0;
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) greatest[r][h] = __int_as_float(0xff800000);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[r][i] = 0;
    }
  }

  // The rows from `row0` on against keys [key0, key0 + 16 * groups) of the tiles, or some more: the number of groups
  // that are met is a constant, so that one's loads and exponentials hide behind another's products. Tiles of up to 64
  // keys meet exactly `groups`; larger ones half of them or all, and hold zeros in what is not there.
  // kFirst: these are the first keys that the rows meet, so that there is nothing to rescale.
  template <bool kFirst, int kNow = kGroups>
  __device__ __forceinline__ void meet(const T* k_tile, const T* v_tile, int row0, int key0, int groups,
                                       const VisibleKeys& keys, float scale) {
    if constexpr (kNow > 1) {
      constexpr int kFewer = kGroups <= 4 ? kNow - 1 : kNow / 2;
      if (groups <= kFewer) return meet<kFirst, kFewer>(k_tile, v_tile, row0, key0, groups, keys, scale);
    }
    Scores<kNow> s;
    scores(s, k_tile);
    const int seen_by_all = kCausal ? min(keys.end, row0 + 1) : keys.end;
    if (key0 + kNow * 16 > seen_by_all || (kMasked && (key0 < keys.first || keys.bitmap))) hide(s, row0, key0, keys);
    soften<kFirst>(s, scale);
    weigh(s, v_tile);
  }

  __device__ __forceinline__ bool all_finite() const {
    float products = 0;  // with 0: NaN once an output is not finite
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) products = fmaf(o[r][n][i], 0.0f, products);
      }
    }
    return products == 0.0f;
  }

  // Adds the values of keys [key0, key0 + keys) that are not finite, which clear_not_finite() took out of the tile, to
  // the rows that see them. A weight is positive, so they count as they are.
  __device__ __forceinline__ void add_not_finite(const T* v, i64 v_row, int row0, int key0, int keys_here,
                                                 const VisibleKeys& keys) {
#pragma unroll 1
    for (int key = key0; key < key0 + keys_here; ++key) {
      if (!keys.holds(key)) continue;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = n * 8 + lane() % 4 * 2 + i;
          const float value = column < kHeadDim ? to_float(load_in_order(v + key * v_row + column)) : 0.0f;
          if (!__any_sync(kAllLanes, !is_finite(value))) continue;
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              if (!is_finite(value) && key <= row0 + r * 16 + h * 8 + lane() / 4) o[r][n][2 * h + i] += value;
            }
          }
        }
      }
    }
  }

  // The finished rows to a tile of the same shape as the queries', which may be theirs.
  __device__ __forceinline__ void finish(T* rows) {
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float total = sum[r][2 * h];
        const float share = total == 0.0f ? 0.0f : 1.0f / total;  // no key seen, or none of weight: 0
        T* to = rows + (r * 16 + h * 8 + lane() / 4) * kStride + lane() % 4 * 2;
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n) {
          *reinterpret_cast<u32*>(to + n * 8) = pack2<T>(o[r][n][2 * h] * share, o[r][n][2 * h + 1] * share);
        }
      }
    }
    __syncwarp();
  }

 private:
  template <int kNow>
  struct Scores {
    float at[kRowTiles][2 * kNow][4];
  };

  template <int kNow>
  __device__ __forceinline__ void scores(Scores<kNow>& s, const T* k_tile) const {
    const u32 address = shared_address(k_tile + (lane() % 8 + lane() / 16 * 8) * kStride + lane() / 8 % 2 * 8);
#pragma unroll
    for (int j = 0; j < kNow; ++j) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s.at[r][2 * j][i] = s.at[r][2 * j + 1][i] = 0;
      }
#pragma unroll
      for (int k = 0; k < kWidth / 16; ++k) {
        u32 b[4];
        load_matrices(b, address + (j * 16 * kStride + k * 16) * 2);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          u32 a[4];
          if constexpr (kKeepQueries) {
#pragma unroll
            for (int i = 0; i < 4; ++i) a[i] = q[r][k][i];
          } else {
            load_matrices(a, q_address + (r * 16 * kStride + k * 16) * 2);
          }
          mma_16x8x16<T>(s.at[r][2 * j], a, b[0], b[1]);
          mma_16x8x16<T>(s.at[r][2 * j + 1], a, b[2], b[3]);
        }
      }
    }
  }

  template <int kNow>
  __device__ __forceinline__ void hide(Scores<kNow>& s, int row0, int key0, const VisibleKeys& keys) const {
    // Where only the diagonal hides keys and the groups are exact, it runs through the last ones.
    constexpr bool kOnlyDiagonal = kCausal && !kMasked && kGroups <= 4;
    constexpr int kFrom = kOnlyDiagonal && kNow > kRowTiles ? 2 * (kNow - kRowTiles) : 0;
    const int column0 = key0 + lane() % 4 * 2 - keys.first;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = row0 + r * 16 + h * 8 + lane() / 4;
        const int end = kCausal ? min(keys.end, row + 1) : keys.end;
        const u32 seen = static_cast<u32>(max(0, end - keys.first));
#pragma unroll
        for (int n = kFrom; n < 2 * kNow; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            if (static_cast<u32>(column0 + n * 8 + i) >= seen) s.at[r][n][2 * h + i] = __int_as_float(0xff800000);
          }
        }
      }
    }
    if constexpr (kMasked) {
      if (keys.bitmap) hide_holes(s, key0, keys);
    }
  }

  template <int kNow>
  __device__ __forceinline__ void hide_holes(Scores<kNow>& s, int key0, const VisibleKeys& keys) const {
#pragma unroll
    for (int n = 0; n < 2 * kNow; ++n) {
      const int key = key0 + n * 8;
      const u32 bits = key < keys.end ? keys.bitmap[key / 32] >> (key % 32 + lane() % 4 * 2) : 0;
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (!(bits >> i % 2 & 1)) s.at[r][n][i] = __int_as_float(0xff800000);
        }
      }
    }
  }

  // Scores become exp2(scale * (score - greatest so far)); what came before is rescaled to the new greatest.
  template <bool kFirst, int kNow>
  __device__ __forceinline__ void soften(Scores<kNow>& s, float scale) {
    float factor[kRowTiles][2];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float most = kFirst ? s.at[r][0][2 * h] : greatest[r][h];
#pragma unroll
        for (int n = 0; n < 2 * kNow; ++n) most = fmaxf(most, fmaxf(s.at[r][n][2 * h], s.at[r][n][2 * h + 1]));
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
        // Where all keys so far are hidden, any finite number serves: every weight is then 0.
        const float shift = (most == __int_as_float(0xff800000) ? 0.0f : most) * scale;
        factor[r][h] = kFirst ? 1.0f : exp2_fast(greatest[r][h] * scale - shift);
        greatest[r][h] = most;
#pragma unroll
        for (int n = 0; n < 2 * kNow; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& e = s.at[r][n][2 * h + i];
            e = exp2_fast(fmaf(e, scale, -shift));
          }
        }
      }
    }
    if constexpr (!kFirst) rescale(factor);
  }

  __device__ __forceinline__ void rescale(const float (&factor)[kRowTiles][2]) {
    bool needed = false;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) needed |= factor[r][0] != 1.0f || factor[r][1] != 1.0f;
    if (!__any_sync(kAllLanes, needed)) return;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[r][i] *= factor[r][i / 2];
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[r][n][i] *= factor[r][i / 2];
      }
    }
  }

  template <int kNow>
  __device__ __forceinline__ void weigh(const Scores<kNow>& s, const T* v_tile) {
    constexpr u32 kOnes = same_type<T, f16> ? 0x3c003c00u : 0x3f803f80u;
    const u32 address = shared_address(v_tile + lane() % 16 * kStride + lane() / 16 * 8);
#pragma unroll
    for (int j = 0; j < kNow; ++j) {
      u32 a[kRowTiles][4];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          a[r][i] = pack2<T>(s.at[r][2 * j + i / 2][i % 2 * 2], s.at[r][2 * j + i / 2][i % 2 * 2 + 1]);
      }
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) mma_16x8x16<T>(sum[r], a[r], kOnes, kOnes);
#pragma unroll
      for (int n = 0; n < kWidth / 16; ++n) {
        u32 b[4];
        load_matrices_transposed(b, address + (j * 16 * kStride + n * 16) * 2);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          mma_16x8x16<T>(o[r][2 * n], a[r], b[0], b[1]);
          mma_16x8x16<T>(o[r][2 * n + 1], a[r], b[2], b[3]);
        }
      }
    }
  }
};

}  // namespace gnomon::kernels
