// Bias and activation over [rows, width]. Each function is exact in fp32 (a few units of 2^-24 of max(1, |x|)); the
// tanh form of GELU is a function of its own and never stands in for the other.
#pragma once

#include "vec.cuh"

namespace gnomon::kernels {

constexpr int kActivateThreads = 256;

struct Relu {
  static __device__ __forceinline__ float of(float x) { return x < 0 ? 0 : x; }  // NaN stays NaN
};

// x * Phi(x), Phi the normal distribution function: Phi(x) - 1/2 = x * P(x^2)/Q(x^2), the minimax fit of the CPU
// backend on |x| <= 5.5 (error 7e-9 in exact arithmetic); beyond, Phi is 0 or 1 to fp32 precision.
struct GeluErf {
  static __device__ __forceinline__ float of(float x) {
    const float c = fminf(fmaxf(x, -5.5f), 5.5f);  // of NaN: a number, and NaN times it below
    const float t = c * c;
    float p = 2.2749076458143235e-08f;
    p = fmaf(p, t, 6.351683662474995e-06f);
    p = fmaf(p, t, 0.0001688039363126083f);
    p = fmaf(p, t, 0.0046771258476732925f);
    p = fmaf(p, t, 0.03385082948482642f);
    p = fmaf(p, t, 0.3989422348087147f);
    float q = 1.1974631013311162e-06f;
    q = fmaf(q, t, 7.363901621415731e-05f);
    q = fmaf(q, t, 0.001884323577919187f);
    q = fmaf(q, t, 0.02864477103071846f);
    q = fmaf(q, t, 0.2515173672158726f);
    q = fmaf(q, t, 1.0f);
    return x * fmaf(c, __fdividef(p, q), 0.5f);
  }
};

// x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3), since (1 + tanh u)/2 = sigmoid(2u). exp2 is taken of a number
// that is never positive. -infinity gives -infinity * 0 = NaN, as in PyTorch.
struct GeluTanh {
  static __device__ __forceinline__ float of(float x) {
    constexpr float kTwoRootTwoOverPi = 1.5957691216057308f, kLog2E = 1.4426950408889634f;
    const float z = x * fmaf(x * x, 0.044715f, 1.0f) * (kTwoRootTwoOverPi * kLog2E);
    const float e = exp2f(-fabsf(z));
    return x * __fdividef(z < 0 ? e : 1.0f, 1.0f + e);
  }
};

constexpr int kActivateRows =
    4;  // of a thread, all in one column: its bias is read once, and four loads are on their way

// The columns are dealt to the threads kVec at a time. Narrow rows share a block, wide ones take several.
template <typename T, typename Function, int kVec>
__global__ void __launch_bounds__(kActivateThreads) activate(const Activate p) {
  const int lanes = p.width / kVec;
  const int rows_side_by_side = max(1, kActivateThreads / lanes);
  const u32 column_blocks = static_cast<u32>((lanes + kActivateThreads - 1) / kActivateThreads);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane =
      column_blocks == 1 ? thread % lanes : static_cast<int>(blockIdx.x % column_blocks) * kActivateThreads + thread;
  const int side = column_blocks == 1 ? thread / lanes : 0;
  if (lane >= lanes || side >= rows_side_by_side) return;
  const int column = lane * kVec;
  const i64 row0 = i64{blockIdx.x / column_blocks} * (rows_side_by_side * kActivateRows) + side;

  float bias[kVec] = {};
  if (p.bias) load_floats<float, kVec>(bias, p.bias + column);
  float x[kActivateRows][kVec];
#pragma unroll
  for (int r = 0; r < kActivateRows; ++r) {
    const i64 row = row0 + r * rows_side_by_side;
    if (row < p.rows) load_floats<T, kVec>(x[r], static_cast<const T*>(p.from) + row * p.width + column);
  }
#pragma unroll
  for (int r = 0; r < kActivateRows; ++r) {
    const i64 row = row0 + r * rows_side_by_side;
    if (row >= p.rows) break;
#pragma unroll
    for (int i = 0; i < kVec; ++i) x[r][i] = Function::of(x[r][i] + bias[i]);
    store_floats<T, kVec>(static_cast<T*>(p.to) + row * p.width + column, x[r]);
  }
}

}  // namespace gnomon::kernels
