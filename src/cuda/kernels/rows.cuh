// The first kernel of a pass: the caller's rows, of any strides, to contiguous ones, in one reading that also takes
// each row's size for the range guard. kLanes threads share a row and take kVec adjacent elements at a time.
#pragma once

#include "reduce.cuh"
#include "vec.cuh"

namespace gnomon::kernels {

constexpr int kRowThreads = 256;

template <typename In, typename Narrow, int kVec, int kLanes>
__global__ void __launch_bounds__(kRowThreads) load_rows(const LoadRows p) {
  constexpr int kAtOnce = 4, kApart = kLanes * kVec;  // accesses that are on their way together; elements between them
  __shared__ float slots[1][32];
  const i64 row = i64{blockIdx.x} * (kRowThreads / kLanes) + threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const bool real = row < p.rows;  // the others take part in the sums: whole warps must
  const int end = real ? p.width : 0;
  const In* from = static_cast<const In*>(p.from) + (real ? row_offset(p.strides, row) : 0);
  float squares[1] = {};
  for (int first = lane * kVec; first < end; first += kAtOnce * kApart) {
    Vec<In, kVec> read[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int c = first + k * kApart;
      if (c < end) read[k] = load_strided<In, kVec>(from, c, p.strides.element);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int c = first + k * kApart;
      if (c >= end) break;
      float x[kVec];
      to_floats(x, read[k]);
#pragma unroll
      for (int i = 0; i < kVec; ++i) squares[0] += x[i] * x[i];
      if (p.wide) store_floats<float, kVec>(p.wide + row * p.width + c, x);
      if constexpr (!same_type<Narrow, none>) {
        store_floats<Narrow, kVec>(static_cast<Narrow*>(p.narrow) + row * p.width + c, x);
      }
    }
  }
  if (!p.range && !p.row_sizes) return;
  sum_group<kLanes>(squares, slots);
  if (!real || lane != 0) return;
  const float size = sqrtf(squares[0] / static_cast<float>(p.width));
  const bool empty_padding = size == 0.0f && !is_valid(p.mask, row);
  if (p.row_sizes) p.row_sizes[row] = empty_padding ? -1.0f : size;
  // Written so that NaN is outside.
  if (p.range && !empty_padding && !(size >= p.range[0] && size <= p.range[1])) raise(p.flags, kOutsideRange);
}

}  // namespace gnomon::kernels
