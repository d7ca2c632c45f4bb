// The contract on the device, in double precision and to the bit what core/contract.cpp computes on the host: no
// multiply-add is contracted, and sums of results are integers or maxima, whose order does not matter.
#pragma once

#include "vec.cuh"

namespace gnomon::kernels {

constexpr int kJudgeThreads = 256;

// Half the spacing of the stored type's values at a finite r; 0 for types that are compared as they are.
template <typename Stored>
__device__ __forceinline__ double half_step(double r) {
  if constexpr (same_type<Stored, f16> || same_type<Stored, bf16>) {
    constexpr int kFraction = same_type<Stored, f16> ? 10 : 7;
    constexpr int kLeast = same_type<Stored, f16> ? -14 : -126;
    const int exponent = static_cast<int>(__double_as_longlong(r) >> 52 & 0x7ff) - 1023;
    const int step = (exponent > kLeast ? exponent : kLeast) - kFraction - 1;
    return __longlong_as_double(static_cast<i64>(step + 1023) << 52);
  } else {
    return 0;
  }
}

template <typename Stored>
__device__ __forceinline__ double term_of(double u, double r, double abs, double rel) {
  const double infinity = __longlong_as_double(0x7ff0000000000000ll);
  if (u == r) return 0;
  if (r != r) return u != u ? 0 : infinity;
  if (!(fabs(u) < infinity) || !(fabs(r) < infinity)) return infinity;
  const double difference = __dsub_rn(fabs(__dsub_rn(u, r)), half_step<Stored>(r));
  if (difference <= 0) return 0;
  return __ddiv_rn(difference, fmax(abs, __dmul_rn(rel, fabs(r))));
}

template <typename U, typename R>
__device__ __forceinline__ void element_at(const Compare& p, i64 i, double& u, double& r) {
  const i64 row = p.rows == 1 ? 0 : i / p.width;
  const i64 column = i - row * p.width;
  u = to_double(static_cast<const U*>(p.u)[row_offset(p.u_strides, row) + column * p.u_strides.element]);
  r = to_double(static_cast<const R*>(p.r)[row_offset(p.r_strides, row) + column * p.r_strides.element]);
}

template <typename U, typename R>
__global__ void __launch_bounds__(kJudgeThreads) compare(const Compare p) {
  u64 worst = 0, bad = 0, first = ~u64{0};
  for (i64 i = i64{blockIdx.x} * kJudgeThreads + threadIdx.x; i < p.rows * p.width;
       i += i64{gridDim.x} * kJudgeThreads) {
    double u, r;
    element_at<U, R>(p, i, u, r);
    const double term = term_of<U>(u, r, p.abs, p.rel);
    const u64 bits = static_cast<u64>(__double_as_longlong(term));
    worst = bits > worst ? bits : worst;
    if (term > 1) {
      ++bad;
      first = static_cast<u64>(i) < first ? static_cast<u64>(i) : first;
    }
  }
  if (worst) atomicMax(&p.result->worst, worst);
  if (bad) {
    atomicAdd(&p.result->out_of_contract, bad);
    atomicMin(&p.result->first_bad, first);
  }
}

// The values at the first element out of contract; one thread, after `compare`.
template <typename U, typename R>
__global__ void fetch_first_bad(const Compare p) {
  if (p.result->first_bad == ~u64{0}) return;
  element_at<U, R>(p, static_cast<i64>(p.result->first_bad), p.result->bad_value, p.result->bad_reference);
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) check_pattern(const CheckPattern p) {
  u64 changed = 0;
  for (i64 i = i64{blockIdx.x} * kThreads + threadIdx.x; i < p.n; i += i64{gridDim.x} * kThreads) {
    changed += p.words[i] != p.pattern;
  }
  if (changed) atomicAdd(p.changed, changed);
}

}  // namespace gnomon::kernels
