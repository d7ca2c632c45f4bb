// Operations on tokens that are the columns of accumulators: a thread has features `low` and eight above it, and of
// each block of 8 tokens two: x[4 * block + 0, 1] is the low feature, x[4 * block + 2, 3] the high one. A token's
// features lie over lanes, warps and warpgroups.
#pragma once

#include "resident_split_stream.cuh"
#include "resident_tile.cuh"

namespace gnomon::kernels::resident {

// x += a vector, of which the thread has its two features' values.
template <int kSize>
__device__ __forceinline__ void add_to_tokens(float (&x)[kSize], float2 v) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) x[i] += i % 4 < 2 ? v.x : v.y;
}

__device__ __forceinline__ float from_lane(float v, int apart) { return __shfl_xor_sync(kAllLanes, v, apart); }

// Some values' mean and their sum of squared differences from it.
struct Moments {
  float mean, squares;
  static __device__ __forceinline__ Moments of(float low, float high) {
    const float apart = low - high;
    return {0.5f * (low + high), 0.5f * apart * apart};
  }
  __device__ __forceinline__ Moments of_lane(int apart) const {
    return {from_lane(mean, apart), from_lane(squares, apart)};
  }
  __device__ __forceinline__ Moments of_sixteen() const { return *this; }
};

// Of twice as many values, `count` in each half. The same bits whichever half comes first.
__device__ __forceinline__ Moments merged(const Moments& a, const Moments& b, float count) {
  const float apart = a.mean - b.mean;
  return {0.5f * (a.mean + b.mean), a.squares + b.squares + apart * apart * (0.5f * count)};
}

// The same as sums of values and of their squares: a third fewer instructions, and right where the mean is not many
// deviations from zero.
struct Sums {
  float sum, squares;
  static __device__ __forceinline__ Sums of(float low, float high) { return {low + high, low * low + high * high}; }
  __device__ __forceinline__ Sums of_lane(int apart) const {
    return {from_lane(sum, apart), from_lane(squares, apart)};
  }
  __device__ __forceinline__ Moments of_sixteen() const {
    const float mean = sum * (1.0f / 16);
    return {mean, fmaxf(squares - sum * mean, 0.0f)};
  }
};
__device__ __forceinline__ Sums merged(const Sums& a, const Sums& b, float) {
  return {a.sum + b.sum, a.squares + b.squares};
}

// What a stack's norms add up. Behind a norm the mean is no more deviations from zero than fp16 operands can bear.
template <bool kPreNorm>
struct NormParts {
  using type = Moments;
};
template <>
struct NormParts<false> {
  using type = Sums;
};

// How many tokens a lane still has when the lanes that share them have halved them as often as they can.
__host__ __device__ constexpr int tokens_left(int tokens) {
  for (int i = 0; i < 3 && tokens % 2 == 0; ++i) tokens /= 2;
  return tokens;
}

// Merges the moments of lanes kStep, kStep / 2 ... 4 apart, of kTokens tokens: of(i) for token i. Of an even number
// each lane goes on with half; what is left is in m, and `first` becomes the first of these.
template <int kTokens, int kStep, typename M, int kSize, typename Of>
__device__ __forceinline__ void merge_lanes(M (&m)[kSize], int& first, int lane, float count, Of&& of) {
  constexpr bool kHalve = kTokens % 2 == 0;
  constexpr int kLeft = kHalve ? kTokens / 2 : kTokens;
  const bool upper = (lane & kStep) != 0;
#pragma unroll
  for (int i = 0; i < kLeft; ++i) {
    const M low = of(i), high = of(kHalve ? i + kLeft : i);
    const M keep = kHalve && upper ? high : low;
    const M give = kHalve && !upper ? high : low;
    m[i] = merged(keep, give.of_lane(kStep), count);
  }
  if (kHalve && upper) first += kLeft;
  if constexpr (kStep > 4) merge_lanes<kLeft, kStep / 2>(m, first, lane, 2 * count, [&](int i) { return m[i]; });
}

// The moments of each token over the 16 features of a warp, to `at`: {mean, squares} for each token.
template <typename M, int kSize>
__device__ __forceinline__ void store_moments(const float (&x)[kSize], u32 at) {
  constexpr int kTokens = kSize / 2, kLeft = tokens_left(kTokens);
  M m[kTokens % 2 == 0 ? kTokens / 2 : kTokens];
  const int lane = static_cast<int>(anew(threadIdx.x));  // what follows from it is not kept for the next time
  int first = 0;
  merge_lanes<kTokens, 16>(m, first, lane, 2.0f,
                           [&](int i) { return M::of(x[i / 2 * 4 + i % 2], x[i / 2 * 4 + 2 + i % 2]); });
#pragma unroll
  for (int i = 0; i < kLeft; ++i) {
    const int token = (first + i) / 2 * 8 + lane % 4 * 2 + (first + i) % 2;
    const Moments all = m[i].of_sixteen();
    store_shared(at + 8 * token, __float_as_uint(all.mean));
    store_shared(at + 8 * token + 4, __float_as_uint(all.squares));
  }
}

// Of kWarps warps' moments of 16 features each, those of all these features; `at` is the token's first, `step` bytes
// from warp to warp. Not pairwise: all means are there.
template <int kWarps>
__device__ __forceinline__ Moments load_moments(u32 at, u32 step) {
  float2 m[kWarps];
  float mean[2] = {}, squares[2] = {};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) m[w] = shared_pair(at + w * step);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) mean[w % 2] += m[w].x, squares[w % 2] += m[w].y;
  const float of_all = (mean[0] + mean[1]) * (1.0f / kWarps);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) squares[w % 2] += 16 * ((m[w].x - of_all) * (m[w].x - of_all));
  return {of_all, squares[0] + squares[1]};
}

// LayerNorm, packed in pairs of tokens; x becomes it too where kKeep says so. `tokens` is the address of the thread's
// first token's {mean, 1 / deviation}.
template <bool kKeep, int kSize>
__device__ __forceinline__ void normalise_tokens(u32* a, float (&x)[kSize], u32 tokens, float2 gain, float2 shift) {
#pragma unroll
  for (int i = 0; i < kSize; i += 4) {
    const float4 t = shared_floats(tokens + 16 * i);
    const float y[4] = {(x[i] - t.x) * t.y * gain.x + shift.x, (x[i + 1] - t.z) * t.w * gain.x + shift.x,
                        (x[i + 2] - t.x) * t.y * gain.y + shift.y, (x[i + 3] - t.z) * t.w * gain.y + shift.y};
    a[i / 2] = pack2<f16>(y[0], y[1]), a[i / 2 + 1] = pack2<f16>(y[2], y[3]);
#pragma unroll
    for (int k = 0; k < 4 && kKeep; ++k) x[i + k] = y[k];
  }
}

// Activations of (x + bias), packed in pairs of tokens: values [kFirst, kFirst + kCount).
template <Activation kKind, int kFirst, int kCount, int kSize>
__device__ __forceinline__ void activate_tokens(u32* a, const float (&x)[kSize], float2 bias) {
  float part[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) part[i] = x[kFirst + i] + ((kFirst + i) % 4 < 2 ? bias.x : bias.y);
  activate_rows<kKind, false>(a + kFirst / 2, part);
}

}  // namespace gnomon::kernels::resident
