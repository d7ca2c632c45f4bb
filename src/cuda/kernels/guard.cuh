// A plan of reduced precision answers only where it was verified: its kernels raise a flag, and what follows it in the
// graph is the fp32 pass, under a condition that is set when the flag is up. What was computed for an input that the
// output replaces is kept aside until it is known to be good.
#pragma once

#include "vec.cuh"

// A graph's own function, which the driver provides.
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

namespace gnomon::kernels {

constexpr int kDecideThreads = 32, kCommitThreads = 256, kReloadThreads = 256;

// One thread's work. kThreads: as launched.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) decide(const Decide p) {
  if (threadIdx.x != 0) return;
  if (p.condition) {
    const bool answers = *p.flags != 0;
    cudaGraphSetConditional(p.condition, answers);  // in any case: a default would be a step of its own at each replay
    if (!answers) return;
    *p.flags = 0;
  }
  *p.told = p.call;
  atomicAdd(p.answered, 1u);
}

template <typename T>
__global__ void __launch_bounds__(kReloadThreads) reload_rows(const ReloadRows p) {
  const T* const first = static_cast<const T*>(p.call->input);
  for (i64 at = i64{blockIdx.x} * kReloadThreads + threadIdx.x; at < p.rows * p.width;
       at += i64{gridDim.x} * kReloadThreads) {
    const i64 row = at / p.width;
    p.wide[at] = to_float(first[row_offset(p.strides, row) + (at - row * p.width) * p.strides.element]);
  }
}

template <typename T, int kVec>
__global__ void __launch_bounds__(kCommitThreads) commit_rows(const CommitRows p) {
  if (p.flags && *p.flags != 0) return;
  const i64 at = (i64{blockIdx.x} * kCommitThreads + threadIdx.x) * kVec;  // width is a multiple of kVec
  if (at >= p.rows * p.width) return;
  const i64 row = at / p.width;
  const int column = static_cast<int>(at - row * p.width);
  const T* from = static_cast<const T*>(p.from) + at;
  T* to = static_cast<T*>(p.call ? p.call->output : p.to) + row_offset(p.to_strides, row);
#pragma unroll
  for (int i = 0; i < kVec; ++i) to[(column + i) * p.to_strides.element] = from[i];
}

}  // namespace gnomon::kernels
