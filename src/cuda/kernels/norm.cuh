// Residual add, bias, LayerNorm and casts in one kernel: each row is read once and kept in registers. kLanes threads
// share a row (part of a warp, or a block), each with kChunks times kVec adjacent elements. Statistics are taken in two
// passes over the registers, mean first: the sum of squared differences does not cancel.
#pragma once

#include "reduce.cuh"
#include "vec.cuh"

namespace gnomon::kernels {

template <int kLanes>
constexpr int norm_threads = kLanes > 32 ? kLanes : 128;

template <typename T, int kVec>
__device__ __forceinline__ bool store_strided(T* row, int column, i64 element, const float (&from)[kVec]) {
  if constexpr (kVec > 1) {
    store_floats<T, kVec>(row + column, from);
  } else {
    row[column * element] = from_float<T>(from[0]);
  }
  bool finite = true;
#pragma unroll
  for (int i = 0; i < kVec; ++i) finite &= is_finite(to_float(from_float<T>(from[i])));
  return finite;
}

// kBranchStep: the branch's rows lie so many widths apart.
template <typename Residual, typename Branch, typename Narrow, typename Out, int kVec, int kLanes, int kChunks,
          int kBranchStep = 1>
__global__ void __launch_bounds__(norm_threads<kLanes>) norm_rows(const NormRows p) {
  constexpr int kThreads = norm_threads<kLanes>;
  __shared__ float mean_slots[32], variance_slots[32];
  const i64 row = i64{blockIdx.x} * (kThreads / kLanes) + threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const bool real = row < p.rows;
  const auto column = [&](int chunk) { return (chunk * kLanes + lane) * kVec; };
  const auto inside = [&](int chunk) { return real && column(chunk) < p.width; };
  const i64 at = row * p.width;

  float x[kChunks][kVec];
  {
    const Residual* residual = static_cast<const Residual*>(p.residual);
    if (real) residual += row_offset(p.residual_strides, row);
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
#pragma unroll
      for (int i = 0; i < kVec; ++i) x[k][i] = 0;
      if (inside(k)) load_strided<Residual, kVec>(x[k], residual, column(k), p.residual_strides.element);
    }
  }
  if constexpr (!same_type<Branch, none>) {
    const Branch* branch = static_cast<const Branch*>(p.branch) + at * kBranchStep;
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      if (!inside(k)) continue;
      float y[kVec];
      load_floats<Branch, kVec>(y, branch + column(k));
#pragma unroll
      for (int i = 0; i < kVec; ++i) x[k][i] += y[i];
    }
  }
  if (p.bias) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      if (!inside(k)) continue;
      float b[kVec];
      load_floats<float, kVec>(b, p.bias + column(k));
#pragma unroll
      for (int i = 0; i < kVec; ++i) x[k][i] += b[i];
    }
  }
  if (p.sum) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      if (inside(k)) store_floats<float, kVec>(p.sum + at + column(k), x[k]);
    }
  }
  if (p.weight) {
    const float share = 1.0f / static_cast<float>(p.width);
    float total = 0;
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
#pragma unroll
      for (int i = 0; i < kVec; ++i) total += x[k][i];
    }
    const float mean = sum_group<kLanes>(total, mean_slots) * share;
    float squares = 0;
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        const float difference = x[k][i] - mean;
        squares += inside(k) ? difference * difference : 0.0f;
      }
    }
    const float scale = rsqrtf(sum_group<kLanes>(squares, variance_slots) * share + p.eps);
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      if (!inside(k)) continue;
      float w[kVec], b[kVec];
      load_floats<float, kVec>(w, p.weight + column(k));
      if (p.shift) {
        load_floats<float, kVec>(b, p.shift + column(k));
      } else {
#pragma unroll
        for (int i = 0; i < kVec; ++i) b[i] = 0;
      }
#pragma unroll
      for (int i = 0; i < kVec; ++i) x[k][i] = (x[k][i] - mean) * scale * w[i] + b[i];
    }
  }
  bool finite = true;
#pragma unroll
  for (int k = 0; k < kChunks; ++k) {
    if (!inside(k)) continue;
    if (p.normalised) store_floats<float, kVec>(p.normalised + at + column(k), x[k]);
    if constexpr (!same_type<Narrow, none>) {
      store_floats<Narrow, kVec>(static_cast<Narrow*>(p.narrow) + at + column(k), x[k]);
    }
    if constexpr (!same_type<Out, none>) {
      Out* to = static_cast<Out*>(p.to) + row_offset(p.to_strides, row);
      finite &= store_strided<Out, kVec>(to, column(k), p.to_strides.element, x[k]);
    }
  }
  if constexpr (!same_type<Out, none>) {
    if (p.flags && !finite) raise(p.flags, kOutputNotFinite);
  }
}

}  // namespace gnomon::kernels
