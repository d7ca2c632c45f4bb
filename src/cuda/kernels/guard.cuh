// A plan of reduced precision answers only where it was verified. What it computed for an input that its output
// replaces is kept aside until it is known to be good.
#pragma once

#include "vec.cuh"

namespace gnomon::kernels {

constexpr int kCommitThreads = 256;

// Contiguous rows to the caller's, unless a flag is raised.
template <typename T, int kVec>
__global__ void __launch_bounds__(kCommitThreads) commit_rows(const CommitRows p) {
  if (*p.flags != 0) return;
  const i64 at = (i64{blockIdx.x} * kCommitThreads + threadIdx.x) * kVec;  // width is a multiple of kVec
  if (at >= p.rows * p.width) return;
  const i64 row = at / p.width;
  const int column = static_cast<int>(at - row * p.width);
  const T* from = static_cast<const T*>(p.from) + at;
  T* to = static_cast<T*>(p.to) + row_offset(p.to_strides, row);
#pragma unroll
  for (int i = 0; i < kVec; ++i) to[(column + i) * p.to_strides.element] = from[i];
}

}  // namespace gnomon::kernels
