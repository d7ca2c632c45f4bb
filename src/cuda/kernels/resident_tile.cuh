// Operations on 64 rows held by a warpgroup in the layout of wgmma's accumulators (wgmma.cuh): a thread has two rows,
// `low` and eight below it, and of each block of 16 columns four values a row.
#pragma once

#include "memory.cuh"
#include "mma.cuh"
#include "reduce.cuh"
#include "resident_layout.cuh"
#include "wgmma.cuh"

namespace gnomon::kernels::resident {

// Vectors are stored so that a thread finds its columns side by side: four floats are columns 2q, 2q + 1, 2q + 8 and
// 2q + 9 of a block of 16. Where in a vector of this fragment order a column lies:
__host__ __device__ constexpr int fragment_order(int column) {
  return column / 16 * 16 + column % 8 / 2 * 4 + column % 16 / 8 * 2 + column % 2;
}

// Where in a vector of doubled order it lies, and again two floats on: a thread's values of both rows are then four in
// a row.
__host__ __device__ constexpr int doubled_order(int column) { return column / 2 * 4 + column % 2; }

// x = the vector, in doubled order; `vector` is the address of this thread's first four values. Loaded into their final
// registers: a copy would read what the next products accumulate in, a hazard to the compiler when others run.
template <int kSize>
__device__ __forceinline__ void set_rows(float (&x)[kSize], u32 vector) {
#pragma unroll
  for (int i = 0; i < kSize; i += 4) {
    const float4 v = shared_floats(vector + 16 * i);
    x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
  }
}

// The thread's values of a vector in doubled order, each once.
template <int kSize>
__device__ __forceinline__ void load_vector(float (&v)[kSize], u32 vector) {
#pragma unroll
  for (int i = 0; i < kSize; i += 2) {
    const float2 pair = shared_pair(vector + 32 * i);
    v[i] = pair.x, v[i + 1] = pair.y;
  }
}
template <int kSize>
__device__ __forceinline__ void add_vector(float (&x)[kSize], const float (&v)[kSize / 2]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) x[i] += v[i / 4 * 2 + i % 2];
}

// x += the vector, in fragment order.
template <int kSize>
__device__ __forceinline__ void add_to_rows(float (&x)[kSize], u32 vector) {
#pragma unroll
  for (int i = 0; i < kSize; i += 8) {
    const float4 v = shared_floats(vector + 8 * i);
    x[i] += v.x, x[i + 1] += v.y, x[i + 2] += v.x, x[i + 3] += v.y;
    x[i + 4] += v.z, x[i + 5] += v.w, x[i + 6] += v.z, x[i + 7] += v.w;
  }
}

// The A operand of a product: its registers for 16 columns are two neighbouring blocks, packed in pairs.
template <int kSize>
__device__ __forceinline__ void pack_rows(u32* a, const float (&x)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize / 2; ++i) a[i] = pack2<f16>(x[2 * i], x[2 * i + 1]);
  wgmma::settle<kSize / 2>(a);
}

// Mean and 1 / sqrt(variance + eps) of the two rows, side by side in two chains each: a chain alone waits four cycles
// for each addition. In one pass where a row's mean is at most eight times its deviation, for which the mean of squares
// less the mean's square keeps eighteen bits; otherwise the squared differences in a second, which do not cancel.
template <int kSize>
__device__ __forceinline__ void row_statistics(const float (&x)[kSize], float eps, float (&mean)[2],
                                               float (&inverse)[2]) {
  constexpr float kInverseColumns = 1.0f / (2 * kSize);
  float sums[2][2] = {}, squares[2][2] = {};  // [row][column % 2]
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    sums[i % 4 / 2][i % 2] += x[i];
    squares[i % 4 / 2][i % 2] += x[i] * x[i];
  }
  bool kept = true;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    mean[r] = sum_lanes<4>(sums[r][0] + sums[r][1]) * kInverseColumns;
    const float variance = sum_lanes<4>(squares[r][0] + squares[r][1]) * kInverseColumns - mean[r] * mean[r];
    kept &= 64 * variance >= mean[r] * mean[r];
    inverse[r] = rsqrtf(variance + eps);
    squares[r][0] = squares[r][1] = 0;
  }
  if (__all_sync(kAllLanes, kept)) return;
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    const float difference = x[i] - mean[i % 4 / 2];
    squares[i % 4 / 2][i % 2] += difference * difference;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    inverse[r] = rsqrtf(sum_lanes<4>(squares[r][0] + squares[r][1]) * kInverseColumns + eps);
  }
}

// LayerNorm into `to`, which may be x.
template <int kSize>
__device__ __forceinline__ void normalise_rows(float (&to)[kSize], const float (&x)[kSize], u32 gain, u32 shift,
                                               float eps) {
  float mean[2], inverse[2];
  row_statistics(x, eps, mean, inverse);
  const float low = -mean[0] * inverse[0], high = -mean[1] * inverse[1];
#pragma unroll
  for (int i = 0; i < kSize; i += 8) {
    const float4 g = shared_floats(gain + 8 * i), s = shared_floats(shift + 8 * i);
    const float gains[4] = {g.x, g.y, g.z, g.w}, shifts[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int column = k / 4 * 2 + k % 2;
      const bool second = k % 4 / 2;
      const float unit = x[i + k] * inverse[second] + (second ? high : low);
      to[i + k] = unit * gains[column] + shifts[column];
    }
  }
}

// GELU is computed of y = x / 8, which the first product's weights are packed for, and comes out as a quarter of
// itself, which the second's make up for: y + y * tanh(y * P(y^2)), where y^2 is saturated at 1, beyond which tanh is 1
// anyway. Largest error of the fit 2.5e-5 for erf's GELU; the other one is this form itself. The hardware's tanh adds
// about |x| * 2^-12 to either, as much as the operand's rounding to fp16 does above zero.
template <Activation kKind>
constexpr float activation_factor = kKind == Activation::relu ? 1.0f : 0.125f;
template <Activation kKind>
constexpr float activated_factor = kKind == Activation::relu ? 1.0f : 0.25f;

// P, lowest term first.
template <Activation kKind>
struct GeluFit {};
template <>
struct GeluFit<Activation::gelu> {
  static constexpr int kTerms = 3;
  __device__ static constexpr float term(int i) {
    constexpr float c[kTerms] = {8 * 7.97507884e-01f, 8 * 64 * 3.70056460e-02f, -8 * 4096 * 3.51516790e-04f};
    return c[i];
  }
};
template <>
struct GeluFit<Activation::gelu_tanh> {  // sqrt(2 / pi) * (x + 0.044715 x^3)
  static constexpr int kTerms = 2;
  __device__ static constexpr float term(int i) {
    constexpr float c[kTerms] = {8 * 0.7978845608f, 8 * 64 * 0.0356774081f};
    return c[i];
  }
};

// GELU of packed values, in place. Steps are the outer loops: values side by side hide each other's latency. NaN stays
// NaN: saturation makes it 0, the last product NaN again.
template <Activation kKind, int kSize>
__device__ __forceinline__ void activate_pairs(u32 (&y)[kSize]) {
  using Fit = GeluFit<kKind>;
  const auto both = [](float v) { return pack2<f16>(v, v); };
  u32 u[kSize], q[kSize];
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    u[i] = multiply_pair_saturated(y[i], y[i]), q[i] = both(Fit::term(Fit::kTerms - 1));
  }
#pragma unroll
  for (int term = Fit::kTerms - 2; term >= 0; --term) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) q[i] = fma_pair(q[i], u[i], both(Fit::term(term)));
  }
#pragma unroll
  for (int i = 0; i < kSize; ++i) q[i] = tanh_pair(multiply_pair(y[i], q[i]));
#pragma unroll
  for (int i = 0; i < kSize; ++i) y[i] = fma_pair(y[i], q[i], y[i]);
}

// The activation of x as an A operand, in fp32 or, with fewer instructions and an error of four fp16 roundings for one,
// on pairs of fp16.
template <Activation kKind, bool kPaired, int kSize>
__device__ __forceinline__ void activate_rows(u32* a, const float (&x)[kSize]) {
  using Fit = GeluFit<kKind>;
  if constexpr (kKind == Activation::relu) {
#pragma unroll
    for (int i = 0; i < kSize / 2; ++i) a[i] = larger_pair(pack2<f16>(x[2 * i], x[2 * i + 1]), 0);
  } else if constexpr (kPaired) {
    constexpr int kTogether = kSize / 2 < 16 ? kSize / 2 : 16;
    static_assert(kSize / 2 % kTogether == 0);
#pragma unroll
    for (int i = 0; i < kSize / 2; ++i) a[i] = pack2<f16>(x[2 * i], x[2 * i + 1]);
#pragma unroll
    for (int first = 0; first < kSize / 2; first += kTogether) {
      activate_pairs<kKind>(reinterpret_cast<u32(&)[kTogether]>(a[first]));
    }
  } else {
    constexpr int kTogether = kSize < 8 ? kSize : 8;
    static_assert(kSize % kTogether == 0);
#pragma unroll
    for (int first = 0; first < kSize; first += kTogether) {
      float u[kTogether], q[kTogether];
      const float* y = x + first;
#pragma unroll
      for (int i = 0; i < kTogether; ++i) u[i] = __saturatef(y[i] * y[i]), q[i] = Fit::term(Fit::kTerms - 1);
#pragma unroll
      for (int term = Fit::kTerms - 2; term >= 0; --term) {
#pragma unroll
        for (int i = 0; i < kTogether; ++i) q[i] = q[i] * u[i] + Fit::term(term);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) q[i] = tanh_fast(y[i] * q[i]);
#pragma unroll
      for (int i = 0; i < kTogether; ++i) q[i] = y[i] * q[i] + y[i];
#pragma unroll
      for (int i = 0; i < kTogether; i += 2) a[(first + i) / 2] = pack2<f16>(q[i], q[i + 1]);
    }
  }
  wgmma::settle<kSize / 2>(a);
}

// The keys that the thread's two rows see. Columns are counted from the thread's own first one, 2 * (lane % 4).
template <bool kMasked>
struct VisibleKeys {
  int last[2];                 // none after it
  u32 valid[kMasked ? 4 : 1];  // a bit for each key of 128; without a mask all are valid

  __device__ __forceinline__ bool holds(int row, int column, bool may_be_late) const {
    if (may_be_late && column > last[row]) return false;
    if constexpr (kMasked) return valid[column / 32] >> column % 32 & 1;
    return true;
  }
};

// Softmax over keys without its last division: exp2 of scores (whose scale holds log2 e) less the row's largest, and
// the reciprocal of their sum; 0 for a row that sees nothing. Scores that nobody may see are hidden already.
template <int kSize>
__device__ __forceinline__ void shifted_exponentials(float (&s)[kSize], float (&sum)[2]) {
  const float kHidden = __int_as_float(0xff800000);
  float largest[2][2] = {{kHidden, kHidden}, {kHidden, kHidden}};  // [row][column % 2]: four chains side by side
#pragma unroll
  for (int i = 0; i < kSize; ++i) largest[i % 4 / 2][i % 2] = fmaxf(largest[i % 4 / 2][i % 2], s[i]);
  float shift[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    shift[r] = max_lanes<4>(fmaxf(largest[r][0], largest[r][1]));
    if (shift[r] == kHidden) shift[r] = 0;
  }
  float sums[2][2] = {};
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    s[i] = exp2_fast(s[i] - shift[i % 4 / 2]);
    sums[i % 4 / 2][i % 2] += s[i];
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) sum[r] = sum_lanes<4>(sums[r][0] + sums[r][1]);
}

// Sums of exponentials that need no shift: none of them is too large for fp16, and what 128 small ones lose there is
// less than fp16's own rounding of the sum.
constexpr float kLeastSum = 0x1p-7f, kMostSum = 0x1p14f;

// The weights as an A operand. A third of the work is the largest score and its subtraction: they are left out where
// the sums of all rows of the warp show that nothing was lost. In the blocks for which `late` holds a row may see only
// a part.
template <int kSize, bool kMasked, typename Late>
__device__ __forceinline__ void softmax_rows(u32 (&p)[kSize / 2], float (&s)[kSize],
                                             const VisibleKeys<kMasked>& visible, float (&inverse)[2], Late late) {
  float sums[2][2] = {}, sum[2];
#pragma unroll
  for (int i = 0; i < kSize; i += 2) {
    const int row = i % 4 / 2;
    float e[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (!visible.holds(row, i / 4 * 8 + k, late(i / 4))) s[i + k] = __int_as_float(0xff800000);
      e[k] = exp2_fast(s[i + k]);
      sums[row][k] += e[k];
    }
    p[i / 2] = pack2<f16>(e[0], e[1]);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) sum[r] = sum_lanes<4>(sums[r][0] + sums[r][1]);
  const bool plain = sum[0] >= kLeastSum && sum[0] <= kMostSum && sum[1] >= kLeastSum && sum[1] <= kMostSum;
  if (!__all_sync(kAllLanes, plain)) {
    shifted_exponentials(s, sum);
#pragma unroll
    for (int i = 0; i < kSize / 2; ++i) p[i] = pack2<f16>(s[2 * i], s[2 * i + 1]);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) inverse[r] = sum[r] == 0 ? 0.0f : __fdividef(1.0f, sum[r]);
  wgmma::settle<kSize / 2>(p);
}

// The weights as an A operand, with neither shift nor sums, and those that a row does not see 0: `seen` holds masks of
// the low row's pairs in the last blocks. In a causal stack the row eight below sees in a block what the low one sees
// in the block before, and all of the first. Exponentials of fp16 pairs would be two instructions and a third to join
// them.
template <int kMasks, int kSize>
__device__ __forceinline__ void plain_exponentials(u32 (&p)[kSize / 2], const float (&s)[kSize],
                                                   const u32 (&seen)[kMasks]) {
  constexpr int kFirst = kSize / 4 - kMasks;  // block that a row may not see
#pragma unroll
  for (int i = 0; i < kSize / 2; ++i) {
    p[i] = pack2<f16>(exp2_fast(s[2 * i]), exp2_fast(s[2 * i + 1]));
    const int mask = i / 2 - kFirst - i % 2;
    if (mask >= 0) p[i] &= seen[mask];
  }
  wgmma::settle<kSize / 2>(p);
}

template <int kSize>
__device__ __forceinline__ void scale_rows(float (&x)[kSize], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) x[i] *= factor[i % 4 / 2];
}

}  // namespace gnomon::kernels::resident
