// Attention of 16 or 32 queries of one head by one warp, against keys that come in blocks: scores of any number of keys
// fit. Queries lie as the operand of a product (panels of [rows][64]), K and V in panels of [16 keys][64], both with
// the 16-byte chunks of a row swizzled by the row's number.
#pragma once

#include "resident_split_stream.cuh"
#include "resident_tile.cuh"

namespace gnomon::kernels::resident {

template <typename S>
struct RowTiles {
  static constexpr int kHead = S::l.head, kTiles = S::l.tiles_together;
  static constexpr int kPanel = 16 * 128;  // of K or V: 16 keys' rows of 64 features

  int head;
  int first_token;  // in the sequence
  int there;        // tiles: the CTA's last ones may have no tokens
  u32 operand_row;  // of this lane
  float o[kTiles][kHead / 8][4] = {};
  float largest[kTiles][2];
  float sum[kTiles][2] = {};  // of the quad's lanes, each its part; of unshifted exponentials, all of it

  __device__ __forceinline__ RowTiles(int of, int tile, int rank) : head(of) {
    first_token = rank * S::l.rows + 16 * tile;
    there = kTiles == 1 || (16 * (tile + 1) < S::l.rows && first_token + 16 < S::c.seq) ? kTiles : 1;
    const int lane = split_thread<S>() % 32, column = head * kHead;
    operand_row = shared_base() + S::l.queries_at + column / 64 * (S::l.rows * 128) + (16 * tile + lane % 16) * 128 +
                  ((column % 64 / 8 + lane / 16) ^ lane % 8) * 16;
  }

  // Of the keys that the tiles see, in whole row tiles.
  __device__ __forceinline__ int end() const {
    return S::c.causal ? min(first_token + 16 * there, S::l.keys) : S::l.keys;
  }

  // The address of the lane's row in a product's fragment, from the head's first feature on; a step to another feature
  // is a sum for whole panels of 64 and an exclusive or inside one, which the swizzle leaves as it is.
  __device__ __forceinline__ u32 in_operand(int feature, int tile) const {
    const int step = tile < there ? tile * 16 * 128 : 0;  // for one that is not there the first once more
    return (operand_row ^ feature % 64 * 2) + feature / 64 * (S::l.rows * 128) + step;
  }
  static __device__ __forceinline__ u32 in_keys(u32 row, int key, int feature) {
    return (row ^ feature % 64 * 2) + feature / 64 * kPanel + key * S::l.key_bytes;
  }
  __device__ __forceinline__ u32 keys_row(u32 at, u32 row, u32 chunk) const {
    const u32 first = head * kHead / 8;
    return shared_base() + at + first / 8 * kPanel + row * 128 + ((first % 8 + chunk) ^ row % 8) * 16;
  }

  template <int kKeys>
  __device__ __forceinline__ void score(float (&s)[kTiles][kKeys / 8][4], int key0) const {
    const u32 lane = split_thread<S>() % 32, row = keys_row(0, lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll(S::l.key_block < 32 ? 1 : 8)
    for (int feature = 0; feature < kHead; feature += 16) {
      u32 q[kTiles][4];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) load_matrices(q[t], in_operand(feature, t));
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        u32 k[4];
        load_matrices(k, in_keys(row, key0 + 16 * j, feature));
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          mma_16x8x16<f16>(s[t][2 * j], q[t], k[0], k[1]);
          mma_16x8x16<f16>(s[t][2 * j + 1], q[t], k[2], k[3]);
        }
      }
    }
  }

  template <int kKeys>
  __device__ __forceinline__ void hide(float (&s)[kKeys / 8][4], int key0, int tile) const {
    const int lane = split_thread<S>() % 32, first = lane % 4 * 2;
    int last[2];  // key that the thread's two rows see, counted from the thread's first column
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      last[r] = (S::c.causal ? min(first_token + 16 * tile + lane / 4 + 8 * r, S::c.seq - 1) : S::c.seq - 1) - first;
    }
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      u32 valid = ~0u;
      if constexpr (S::c.masked) {
        valid = load_shared(shared_base() + S::l.masks_at + (key0 + 8 * j) / 32 * 4) >> ((key0 + 8 * j) % 32 + first);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (key0 + 8 * j + i % 2 > last[i / 2] || !(valid >> i % 2 & 1)) s[j][i] = __int_as_float(0xff800000);
      }
    }
  }

  // Scores to weights, and what came before to the new scale.
  template <int kKeys>
  __device__ __forceinline__ void weigh(float (&s)[kKeys / 8][4], float (&o)[kHead / 8][4], float (&largest)[2],
                                        float (&sum)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float high = largest[r], more = high;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) high = fmaxf(high, s[j][2 * r]), more = fmaxf(more, s[j][2 * r + 1]);
      high = max_lanes<4>(fmaxf(high, more));
      const float shift = high == __int_as_float(0xff800000) ? 0.0f : high;  // nothing seen yet
      const float scale = exp2_fast(largest[r] - shift);
      largest[r] = high;
      float first = 0, second = 0;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
        s[j][2 * r] = exp2_fast(s[j][2 * r] - shift);
        s[j][2 * r + 1] = exp2_fast(s[j][2 * r + 1] - shift);
        first += s[j][2 * r], second += s[j][2 * r + 1];
      }
      sum[r] = sum[r] * scale + (first + second);
#pragma unroll
      for (int j = 0; j < kHead / 8; ++j) o[j][2 * r] *= scale, o[j][2 * r + 1] *= scale;
    }
  }

  template <int kKeys>
  __device__ __forceinline__ void add_values(const float (&s)[kTiles][kKeys / 8][4], int key0) {
    const u32 lane = split_thread<S>() % 32, row = keys_row(S::l.values_at, lane % 16, lane / 16);
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      // Beyond lie keys that nobody sent, anything: a weight of 0 would not hide NaN.
      if (S::c.causal && j > 0 && key0 + 16 * j >= end()) break;
      u32 p[kTiles][4];
#pragma unroll
      for (int i = 0; i < 4 * kTiles; ++i) {
        const float(&pair)[4] = s[i / 4][2 * j + i % 4 / 2];
        p[i / 4][i % 4] = pack2<f16>(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
      }
#pragma unroll
      for (int feature = 0; feature < kHead; feature += 16) {
        u32 v[4];
        load_matrices_transposed(v, in_keys(row, key0 + 16 * j, feature));
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          mma_16x8x16<f16>(o[t][feature / 8], p[t], v[0], v[1]);
          mma_16x8x16<f16>(o[t][feature / 8 + 1], p[t], v[2], v[3]);
        }
      }
    }
  }

  // Of 16 keys of which a row sees a part: the lane's pair in each 8 of them and of the rows, as a mask of what is
  // packed.
  __device__ __forceinline__ u32 in_sight(int key_half, int row_half) const {
    const int lane = split_thread<S>() % 32, key = 8 * key_half + lane % 4 * 2;
    const int last = S::c.causal ? lane / 4 + 8 * row_half : (S::c.seq - 1) % 16;
    return (key <= last ? 0xffffu : 0) | (key < last ? 0xffff0000u : 0);
  }
  // The same of the mask's bits.
  __device__ __forceinline__ u32 unmasked(int key) const {
    const int lane = split_thread<S>() % 32;
    const u32 bits = load_shared(shared_base() + S::l.masks_at + key / 32 * 4) >> (key % 32 + lane % 4 * 2);
    return (bits & 1 ? 0xffffu : 0) | (bits & 2 ? 0xffff0000u : 0);
  }

  // A block of keys with the scores' exponentials as they are, rounded to fp16: their sums come as a product with ones.
  template <int kKeys>
  __device__ __forceinline__ void meet_plainly(int key0, u32 parity, float (&sums)[kTiles][4]) {
    float s[kTiles][kKeys / 8][4] = {};
    score<kKeys>(s, key0);
    u32 p[kTiles][kKeys / 16][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int edge = S::c.causal ? first_token + 16 * t : S::c.seq / 16 * 16;
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        const int key = key0 + 16 * j;
        const u32 whole = key < edge ? ~0u : 0, part = key == edge ? ~0u : 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float(&e)[4] = s[t][2 * j + half];
          const u32 valid = S::c.masked ? unmasked(key + 8 * half) : ~0u;
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            u32& packed = p[t][j][2 * half + r];
            packed = pack2<f16>(exp2_fast(e[2 * r]), exp2_fast(e[2 * r + 1]));
            if constexpr (S::c.causal || S::c.seq % 16 != 0) packed &= whole | (part & in_sight(half, r));
            if constexpr (S::c.masked) packed &= valid;
          }
        }
      }
    }
    if constexpr (S::l.used > 1) mbarrier::wait(SplitBarriers<S>::values_ready(), parity);
    constexpr u32 kOnes = 0x3c003c00;
    const u32 lane = split_thread<S>() % 32, row = keys_row(S::l.values_at, lane % 16, lane / 16);
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      if (S::c.causal && j > 0 && key0 + 16 * j >= end()) break;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) mma_16x8x16<f16>(sums[t], p[t][j], kOnes, kOnes);
      add_values_of(p, j, row, key0);
    }
  }
  template <int kGroups>
  __device__ __forceinline__ void add_values_of(const u32 (&p)[kTiles][kGroups][4], int j, u32 row, int key0) {
#pragma unroll
    for (int feature = 0; feature < kHead; feature += 16) {
      u32 v[4];
      load_matrices_transposed(v, in_keys(row, key0 + 16 * j, feature));
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        mma_16x8x16<f16>(o[t][feature / 8], p[t][j], v[0], v[1]);
        mma_16x8x16<f16>(o[t][feature / 8 + 1], p[t][j], v[2], v[3]);
      }
    }
  }

  template <int kKeys>
  __device__ __forceinline__ void meet(int key0, u32 parity) {
    float s[kTiles][kKeys / 8][4] = {};
    score<kKeys>(s, key0);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int seen = S::c.causal ? first_token + 16 * t : S::c.seq - 1;  // by all of its rows
      if (S::c.masked || key0 + kKeys - 1 > seen) hide<kKeys>(s[t], key0, t);
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t) weigh<kKeys>(s[t], o[t], largest[t], sum[t]);
    if constexpr (S::l.used > 1) mbarrier::wait(SplitBarriers<S>::values_ready(), parity);
    add_values<kKeys>(s, key0);
  }

  // The output takes its queries' place.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t < there) finish(t, o[t], sum[t]);
    }
  }

  // What exponentials without a shift may sum up to: none is too large for fp16 then, and what small ones lose there is
  // less than fp16's own rounding of the sum.
  static constexpr float kLeast = (S::l.keys > 128 ? 2 : 1) * kLeastSum;
  __device__ __forceinline__ bool plain_is_right() const {
    bool right = true;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) right &= sum[i / 2][i % 2] >= kLeast && sum[i / 2][i % 2] <= kMostSum;
    return __all_sync(kAllLanes, right);
  }

  __device__ __forceinline__ void finish(int tile, const float (&o)[kHead / 8][4], const float (&sum)[2]) const {
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      inverse[r] = sum[r] == 0 ? 0.0f : __fdividef(1.0f, sum[r]);
    }
#pragma unroll
    for (int feature = 0; feature < kHead; feature += 16) {
      u32 a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&block)[4] = o[feature / 8 + i / 2];
        const int r = i % 2;
        a[i] = pack2<f16>(block[2 * r] * inverse[r], block[2 * r + 1] * inverse[r]);
      }
      store_matrices(in_operand(feature, tile), a);
    }
  }

  // Warps share the tile's keys; the first one gets what the others have.
  __device__ __forceinline__ void run_shared(u32 parity, int part, int pair) {
    constexpr int kParts = S::l.parts, kFirst = S::l.part_keys, kRest = S::l.keys - (kParts - 1) * kFirst;
    constexpr int kStep = 16 * 32, kPartial = S::l.partial_bytes, kSums = kHead / 8 * kStep;
    const u32 first = shared_base() + S::l.partials_at + pair * (kParts - 1) * kPartial + split_thread<S>() % 32 * 16;
    float sums[kTiles][4] = {};
    if (part < kParts - 1) {
      if (part == 0 || end() > part * kFirst) meet_plainly<kFirst>(part * kFirst, parity, sums);
    } else {
      if (end() > (kParts - 1) * kFirst) meet_plainly<kRest>((kParts - 1) * kFirst, parity, sums);
    }
    if (part > 0) {
      const u32 at = first + (part - 1) * kPartial;
#pragma unroll
      for (int i = 0; i < kHead / 8; ++i)
        store_shared(at + i * kStep, float4{o[0][i][0], o[0][i][1], o[0][i][2], o[0][i][3]});
      store_shared(at + kSums, float4{sums[0][0], sums[0][2], 0, 0});
    }
    named_barrier(6 + pair, 32 * kParts);  // one instruction for all: synccheck takes two for threads gone astray
    if (part != 0) return;
    sum[0][0] = sums[0][0], sum[0][1] = sums[0][2];
#pragma unroll
    for (int other = 0; other < kParts - 1; ++other) {
      const u32 from = first + other * kPartial;
#pragma unroll
      for (int i = 0; i < kHead / 8; ++i) {
        const float4 v = shared_floats(from + i * kStep);
        o[0][i][0] += v.x, o[0][i][1] += v.y, o[0][i][2] += v.z, o[0][i][3] += v.w;
      }
      const float2 v = shared_pair(from + kSums);
      sum[0][0] += v.x, sum[0][1] += v.y;
    }
    if (!plain_is_right()) meet_all(parity);
    finish();
  }

  // All keys, with the largest score as the shift.
  __device__ __forceinline__ void meet_all(u32 parity) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      largest[t][0] = largest[t][1] = __int_as_float(0xff800000), sum[t][0] = sum[t][1] = 0;
#pragma unroll
      for (int i = 0; i < kHead / 2; ++i) o[t][i / 4][i % 4] = 0;
    }
    constexpr int kBlock = S::l.key_block, kWhole = S::l.keys / kBlock * kBlock;
#pragma unroll 1
    for (int key0 = 0; key0 < kWhole && key0 < end(); key0 += kBlock) meet<kBlock>(key0, parity);
    if constexpr (kWhole < S::l.keys) {
      if (end() > kWhole) meet<S::l.keys - kWhole>(kWhole, parity);
    }
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) sum[i / 2][i % 2] = sum_lanes<4>(sum[i / 2][i % 2]);
  }

  __device__ __forceinline__ void run(u32 parity) {
    if constexpr (!S::l.plain) {
      meet_all(parity);
      return finish();
    }
    constexpr int kBlock = S::l.plain_block, kWhole = S::l.keys / kBlock * kBlock;
    float sums[kTiles][4] = {};
#pragma unroll 1
    for (int key0 = 0; key0 < kWhole && key0 < end(); key0 += kBlock) meet_plainly<kBlock>(key0, parity, sums);
    if constexpr (kWhole < S::l.keys) {
      if (end() > kWhole) meet_plainly<S::l.keys - kWhole>(kWhole, parity, sums);
    }
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) sum[i / 2][i % 2] = sums[i / 2][i % 2 * 2];
    if (!plain_is_right()) meet_all(parity);
    finish();
  }
};

}  // namespace gnomon::kernels::resident
