// Residual add, bias, LayerNorm and casts in one kernel: each row is read once and kept in registers. kLanes threads
// (part of a warp, or a block) share kRows rows; of each they take kChunks times kVec adjacent elements. Memory is busy
// only while many reads are on their way, so all reads of the rows come first, and the vectors' before them. Statistics
// are taken in two passes over the registers, mean first: the sum of squared differences does not cancel.
#pragma once

#include "reduce.cuh"
#include "remainder.cuh"
#include "vec.cuh"

namespace gnomon::kernels {

template <int kLanes>
constexpr int norm_threads = kLanes > 32 ? kLanes : 128;

// The element type to name where there may be no such tensor.
template <typename T>
struct AsReadOf {
  using type = T;
};
template <>
struct AsReadOf<none> {
  using type = f16;
};
template <typename T>
using AsRead = typename AsReadOf<T>::type;

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

template <typename Narrow, int kVec>
__device__ __forceinline__ void store_remainders(u8* to, const float (&from)[kVec]) {
  Vec<u8, kVec> v;
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    v.at[i] = remainder_of(from[i], from_float<Narrow>(from[i]));
  }
  *reinterpret_cast<Vec<u8, kVec>*>(to) = v;
}

// kRemainder: the residual is 16-bit rows with their remainder. kBranchStep: the branch's rows lie so many widths
// apart.
template <typename Residual, typename Branch, typename Narrow, typename Out, int kVec, int kLanes, int kChunks,
          int kRows, bool kRemainder = false, int kBranchStep = 1>
__global__ void __launch_bounds__(norm_threads<kLanes>) norm_rows(const NormRows p) {
  constexpr int kThreads = norm_threads<kLanes>;
  constexpr bool kReadsFirst = kChunks * kVec <= 8;  // of more they would not fit into the registers
  __shared__ float mean_slots[kRows][32], variance_slots[kRows][32];
  const i64 first = (i64{blockIdx.x} * (kThreads / kLanes) + threadIdx.x / kLanes) * kRows;
  const int lane = threadIdx.x % kLanes;
  const auto column = [&](int chunk) { return (chunk * kLanes + lane) * kVec; };
  const auto inside = [&](int chunk) { return column(chunk) < p.width; };
  const auto real = [&](int row) { return first + row < p.rows; };
  // Reads of what is not there take what is, so that no branch comes between them: with branches the compiler waits.
  const auto column_there = [&](int chunk) { return inside(chunk) ? column(chunk) : 0; };
  const auto row_there = [&](int row) { return real(row) ? first + row : p.rows - 1; };

  const Residual* from[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    from[r] = static_cast<const Residual*>(p.residual) + row_offset(p.residual_strides, row_there(r));
  Vec<Residual, kVec> residual[kRows][kChunks];
  Vec<u8, kVec> remainder[kRows][kChunks];
  Vec<AsRead<Branch>, kVec> branch[kRows][kChunks];
  const auto read_rows = [&](int r, int k) {
    residual[r][k] = load_strided<Residual, kVec>(from[r], column_there(k), p.residual_strides.element);
    if constexpr (kRemainder)
      remainder[r][k] = load_vec<u8, kVec>(p.remainder + row_there(r) * p.width + column_there(k));
    if constexpr (!same_type<Branch, none>) {
      const i64 at = row_there(r) * p.width * kBranchStep + column_there(k);
      branch[r][k] = load_vec<Branch, kVec>(static_cast<const Branch*>(p.branch) + at);
    }
  };
  float bias[kChunks][kVec] = {}, weight[kChunks][kVec] = {}, shift[kChunks][kVec] = {};
  const auto read_vector = [&](float(&to)[kChunks][kVec], const float* vector, int k) {
    if (vector) load_floats<float, kVec>(to[k], vector + column_there(k));
  };
  if constexpr (kReadsFirst) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      read_vector(bias, p.bias, k);
      read_vector(weight, p.weight, k);
      read_vector(shift, p.shift, k);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int k = 0; k < kChunks; ++k) read_rows(r, k);
    }
    __syncwarp();  // no read moves below: to save registers, the compiler would wait for one before it begins another
  }

  float x[kRows][kChunks][kVec], sums[kRows] = {}, squares[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      if constexpr (!kReadsFirst) {
        if (k % 4 == 0) __syncwarp();  // nor do these move up: so many chunks at a time
        read_rows(r, k);
        read_vector(bias, p.bias, k);
      }
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        if constexpr (kRemainder) {
          x[r][k][i] = with_remainder(residual[r][k].at[i], remainder[r][k].at[i]);
        } else {
          x[r][k][i] = to_float(residual[r][k].at[i]);
        }
        if constexpr (!same_type<Branch, none>) x[r][k][i] += to_float(branch[r][k].at[i]);
        x[r][k][i] = inside(k) ? x[r][k][i] + bias[k][i] : 0.0f;
        sums[r] += x[r][k][i];
      }
      if (p.sum && real(r) && inside(k)) store_floats<float, kVec>(p.sum + (first + r) * p.width + column(k), x[r][k]);
    }
  }
  if (p.weight) {
    const float share = 1.0f / static_cast<float>(p.width);
    sum_group<kLanes>(sums, mean_slots);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int k = 0; k < kChunks; ++k) {
#pragma unroll
        for (int i = 0; i < kVec; ++i) {
          x[r][k][i] -= sums[r] * share;
          squares[r] += inside(k) ? x[r][k][i] * x[r][k][i] : 0.0f;
        }
      }
    }
    sum_group<kLanes>(squares, variance_slots);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float scale = rsqrtf(squares[r] * share + p.eps);
#pragma unroll
      for (int k = 0; k < kChunks; ++k) {
        if constexpr (!kReadsFirst) {
          read_vector(weight, p.weight, k);
          read_vector(shift, p.shift, k);
        }
#pragma unroll
        for (int i = 0; i < kVec; ++i) x[r][k][i] = x[r][k][i] * scale * weight[k][i] + shift[k][i];
      }
    }
  }

  bool finite = true;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      if (!real(r) || !inside(k)) continue;
      const i64 at = (first + r) * p.width + column(k);
      if (p.normalised) store_floats<float, kVec>(p.normalised + at, x[r][k]);
      if constexpr (!same_type<Narrow, none>) {
        store_floats<Narrow, kVec>(static_cast<Narrow*>(p.narrow) + at, x[r][k]);
        if constexpr (sizeof(Narrow) == 2) {
          if (p.remainder_to) store_remainders<Narrow, kVec>(p.remainder_to + at, x[r][k]);
        }
      }
      if constexpr (!same_type<Out, none>) {
        Out* to = static_cast<Out*>(p.to) + row_offset(p.to_strides, first + r);
        finite &= store_strided<Out, kVec>(to, column(k), p.to_strides.element, x[r][k]);
      }
    }
  }
  if constexpr (!same_type<Out, none>) {
    if (p.flags && !finite) raise(p.flags, kOutputNotFinite);
  }
}

}  // namespace gnomon::kernels
