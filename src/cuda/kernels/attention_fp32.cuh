// Attention in fp32 throughout, on the ordinary arithmetic units: what every reduced form is measured and judged
// against, and the answer to calls that those cannot take. Exact about what is not visible: a key that a row does not
// see is not multiplied with it, so that nothing it holds (NaN, infinity) can get through.
//
// Eight neighbouring threads share four rows; each has kKeys / 8 of a tile's scores and a share of the output's
// columns.
#pragma once

#include "attention_tile.cuh"

namespace gnomon::kernels {

template <int kHeadDim, int kRows, int kKeys>
struct Fp32Layout {
  static constexpr int kThreads = kRows / 4 * 8;
  static constexpr int kWidth = round_up(kHeadDim, 32);  // of the output, in whole float4 of eight threads
  // Rows a float4 apart more than they are long: aligned, and spread over the banks.
  static constexpr int kQStride = kRows + 4, kKStride = kKeys + 4, kVStride = kWidth + 4;
  static constexpr int kQ = kHeadDim * kQStride;  // [feature][row]
  static constexpr int kK = kHeadDim * kKStride;  // [feature][key]
  static constexpr int kV = kKeys * kVStride;     // [key][feature]
  static constexpr int kP = kKeys * kQStride;     // [key][row]
  static constexpr int kBytes = 4 * (kQ + kK + kV + kP);
};

template <int kN>
__device__ __forceinline__ void read(float (&to)[kN], const float* from) {
  constexpr int kVec = kN < 4 ? kN : 4;
#pragma unroll
  for (int i = 0; i < kN; i += kVec) {
    const Vec<float, kVec> v = *reinterpret_cast<const Vec<float, kVec>*>(from + i / kVec * 32);
#pragma unroll
    for (int j = 0; j < kVec; ++j) to[i + j] = v.at[j];
  }
}

// The output of four rows, the first of which sees keys up to `last` of the tile where kHides, each other one more.
template <typename L, int kKeys, bool kHides, int kOut>
__device__ __forceinline__ void weigh(float (&o)[4][kOut], const float* weights, const float* v_tile, int last) {
#pragma unroll 2
  for (int key = 0; key < kKeys; ++key) {
    float weight[4], v[kOut];
    read(weight, weights + key * L::kQStride);
    read(v, v_tile + key * L::kVStride);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if (kHides && key > last + r) continue;
#pragma unroll
      for (int c = 0; c < kOut; ++c) o[r][c] = fmaf(weight[r], v[c], o[r][c]);
    }
  }
}

template <int kHeadDim, int kRows, int kKeys, bool kCausal, bool kMasked>
__global__ void __launch_bounds__(kRows / 4 * 8, 1) attention_fp32(const Attention p) {
  using L = Fp32Layout<kHeadDim, kRows, kKeys>;
  constexpr int kThreads = L::kThreads;
  constexpr int kMine = kKeys / 8;  // a thread's keys of a tile: runs of up to 4, 32 apart
  constexpr int kRun = kMine < 4 ? kMine : 4;
  constexpr int kOut = L::kWidth / 8;  // a thread's columns of the output: runs of 4, 32 apart
  extern __shared__ __align__(128) unsigned char shared[];
  float* const q_tile = reinterpret_cast<float*>(shared);
  float* const k_tile = q_tile + L::kQ;
  float* const v_tile = k_tile + L::kK;
  float* const p_tile = v_tile + L::kV;

  const int seq = static_cast<int>(p.seq);
  const u32 n_tiles = static_cast<u32>((seq + kRows - 1) / kRows);
  const u32 unit = blockIdx.x / n_tiles;
  const int row0 = static_cast<int>(n_tiles - 1 - blockIdx.x % n_tiles) * kRows;
  const i64 b = unit / static_cast<u32>(p.heads);
  const Head<float> head = head_of<float, kHeadDim>(p, b, static_cast<int>(unit % static_cast<u32>(p.heads)));
  const VisibleKeys keys = visible_keys<kMasked>(p, b);
  const int begin = kMasked ? keys.first / kKeys * kKeys : 0;
  const int end = kCausal ? min(keys.end, row0 + kRows) : keys.end;
  const int mine = static_cast<int>(threadIdx.x % 8), quad = static_cast<int>(threadIdx.x / 8) * 4;

  for (int i = static_cast<int>(threadIdx.x); i < kRows * kHeadDim; i += kThreads) {
    const int row = i / kHeadDim, f = i % kHeadDim;
    q_tile[f * L::kQStride + row] = row0 + row < seq ? head.q[(row0 + row) * p.q_row + f] : 0.0f;
  }
  float o[4][kOut] = {};
  float greatest[4], sum[4] = {};
#pragma unroll
  for (int r = 0; r < 4; ++r) greatest[r] = __int_as_float(0xff800000);

#pragma unroll 1
  for (int key0 = begin; key0 < end; key0 += kKeys) {
    __syncthreads();  // nobody reads the tile before any more
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * L::kWidth; i += kThreads) {
      const int key = i / L::kWidth, f = i % L::kWidth;
      const bool real = f < kHeadDim && (kMasked ? keys.holds(key0 + key) : key0 + key < seq);
      if (f < kHeadDim) k_tile[f * L::kKStride + key] = real ? head.k[(key0 + key) * p.k_row + f] : 0.0f;
      v_tile[key * L::kVStride + f] = real ? head.v[(key0 + key) * p.v_row + f] : 0.0f;
    }
    __syncthreads();
    float s[4][kMine] = {};
#pragma unroll 4
    for (int f = 0; f < kHeadDim; ++f) {
      float q[4], k[kMine];
      read(q, q_tile + f * L::kQStride + quad);
      read(k, k_tile + f * L::kKStride + mine * kRun);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int i = 0; i < kMine; ++i) s[r][i] = fmaf(q[r], k[i], s[r][i]);
      }
    }
    const auto key_of = [&](int i) { return key0 + i / kRun * 32 + mine * kRun + i % kRun; };
    const bool checked = key0 + kKeys > (kCausal ? min(keys.end, row0 + 1) : keys.end) ||
                         (kMasked && (key0 < keys.first || keys.bitmap));
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if (checked) {
#pragma unroll
        for (int i = 0; i < kMine; ++i) {
          const bool seen = keys.holds(key_of(i)) && (!kCausal || key_of(i) <= row0 + quad + r);
          if (!seen) s[r][i] = __int_as_float(0xff800000);
        }
      }
      float most = greatest[r];
#pragma unroll
      for (int i = 0; i < kMine; ++i) most = fmaxf(most, s[r][i]);
      most = max_lanes<8>(most);
      // Where all keys so far are hidden, any finite number serves: every weight is then 0.
      const float shift = most == __int_as_float(0xff800000) ? 0.0f : most;
      const float factor = exp2_fast((greatest[r] - shift) * p.scale);
      float total = 0;
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        s[r][i] = exp2_fast((s[r][i] - shift) * p.scale);
        total += s[r][i];
      }
      greatest[r] = most;
      sum[r] = sum[r] * factor + total;
#pragma unroll
      for (int c = 0; c < kOut; ++c) o[r][c] *= factor;
    }
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      *reinterpret_cast<Vec<float, 4>*>(p_tile + (key_of(i) - key0) * L::kQStride +
                                        quad) = {{s[0][i], s[1][i], s[2][i], s[3][i]}};
    }
    __syncwarp();  // the four rows' weights are those of eight lanes of one warp
    const float* const weights = p_tile + quad;
    if (kCausal && key0 + kKeys > row0 + 1) {
      weigh<L, kKeys, true>(o, weights, v_tile + mine * 4, row0 + quad - key0);
    } else {
      weigh<L, kKeys, false>(o, weights, v_tile + mine * 4, 0);
    }
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const float total = sum_lanes<8>(sum[r]);
    const float share = 1.0f / total;
    const int row = row0 + quad + r;
    if (row >= seq) continue;
#pragma unroll
    for (int c = 0; c < kOut; ++c) {
      const int f = c / 4 * 32 + mine * 4 + c % 4;
      if (f < kHeadDim) head.out[row * p.out_row + f] = total == 0.0f ? 0.0f : o[r][c] * share;
    }
  }
}

}  // namespace gnomon::kernels
