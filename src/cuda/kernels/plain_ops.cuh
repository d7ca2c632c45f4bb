// The reference's operators, one pass over memory each, as eager PyTorch has them: the oracle on the device and the
// baseline that candidates are measured against. Written for clarity; fp32 throughout.
#pragma once

#include "reduce.cuh"
#include "vec.cuh"

namespace gnomon::kernels {

// Templates over the block's threads, so that compiling one does not compile all.
__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

// f(i) for i in [0, n), spread over the grid.
template <int kThreads, typename F>
__device__ __forceinline__ void each(i64 n, F&& f) {
  for (i64 i = i64{blockIdx.x} * kThreads + threadIdx.x; i < n; i += i64{gridDim.x} * kThreads) f(i);
}

// f(row, lane) for each row, a warp to a row.
template <int kThreads, typename F>
__device__ __forceinline__ void each_row(i64 rows, F&& f) {
  constexpr int kWarps = kThreads / 32;
  for (i64 r = i64{blockIdx.x} * kWarps + threadIdx.x / 32; r < rows; r += i64{gridDim.x} * kWarps) {
    f(r, static_cast<int>(threadIdx.x % 32));
  }
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) plain_add(const PlainElements p) {
  each<kThreads>(p.n, [&](i64 i) { p.to[i] = p.a[i] + p.b[i]; });
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) plain_add_bias(const PlainElements p) {
  each<kThreads>(p.n, [&](i64 i) { p.to[i] = p.a[i] + p.b[i % p.width]; });
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) plain_scale(const PlainElements p) {
  each<kThreads>(p.n, [&](i64 i) { p.to[i] = p.a[i] * p.factor; });
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) plain_mask_causal(const PlainScores p) {
  each_row<kThreads>(p.units * p.queries, [&](i64 row, int lane) {
    const i64 last = p.first_query + row % p.queries;
    for (i64 k = lane; k < p.seq; k += 32)
      p.to[row * p.seq + k] = k <= last ? p.from[row * p.seq + k] : minus_infinity();
  });
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) plain_mask_keys(const PlainScores p) {
  each_row<kThreads>(p.units * p.queries, [&](i64 row, int lane) {
    const i64 b = row / p.queries / p.heads;
    for (i64 k = lane; k < p.seq; k += 32) {
      p.to[row * p.seq + k] = is_valid(p.mask, b, k) ? p.from[row * p.seq + k] : minus_infinity();
    }
  });
}

// A row that sees no key, or none with weight, becomes 0; NaN stays NaN.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) plain_softmax(const PlainScores p) {
  each_row<kThreads>(p.units * p.queries, [&](i64 row, int lane) {
    const float* from = p.from + row * p.seq;
    float* to = p.to + row * p.seq;
    float greatest = minus_infinity();
    for (i64 k = lane; k < p.seq; k += 32) greatest = fmaxf(greatest, from[k]);
    greatest = max_lanes<32>(greatest);
    if (greatest == minus_infinity()) greatest = 0;
    float sum = 0;
    for (i64 k = lane; k < p.seq; k += 32) {
      const float e = expf(from[k] - greatest);
      to[k] = e;
      sum += e;
    }
    sum = sum_lanes<32>(sum);
    const float share = sum == 0 ? 0 : 1 / sum;
    for (i64 k = lane; k < p.seq; k += 32) to[k] *= share;
  });
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) plain_split_heads(const PlainHeads p) {
  each_row<kThreads>(p.batch * p.seq * p.heads, [&](i64 row, int lane) {  // row of `from`
    const i64 token = row / p.heads, h = row % p.heads, b = token / p.seq, s = token % p.seq;
    float* to = p.to + ((b * p.heads + h) * p.seq + s) * p.head_dim;
    for (int f = lane; f < p.head_dim; f += 32) to[f] = p.from[row * p.head_dim + f];
  });
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) plain_merge_heads(const PlainHeads p) {
  each_row<kThreads>(p.batch * p.seq * p.heads, [&](i64 row, int lane) {  // row of `to`
    const i64 token = row / p.heads, h = row % p.heads, b = token / p.seq, s = token % p.seq;
    const float* from = p.from + ((b * p.heads + h) * p.seq + s) * p.head_dim;
    for (int f = lane; f < p.head_dim; f += 32) p.to[row * p.head_dim + f] = from[f];
  });
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) plain_weigh(const PlainWeigh p) {
  const PlainScores& s = p.scores;
  each_row<kThreads>(s.units * s.queries, [&](i64 row, int lane) {
    const i64 unit = row / s.queries, query = s.first_query + row % s.queries;
    const i64 b = unit / s.heads;
    const i64 end = p.causal ? query + 1 : s.seq;
    const float* weights = s.from + row * s.seq;
    const float* v = p.v + unit * s.seq * p.head_dim;
    for (int f = lane; f < p.head_dim; f += 32) {
      float sum = 0;
      for (i64 k = 0; k < end; ++k) {
        if (is_valid(s.mask, b, k)) sum += weights[k] * v[k * p.head_dim + f];
      }
      s.to[(unit * s.seq + query) * p.head_dim + f] = sum;
    }
  });
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) plain_norm(const PlainNorm p) {
  each_row<kThreads>(p.rows, [&](i64 row, int lane) {
    const float* x = p.x + row * p.width;
    const float share = 1.0f / static_cast<float>(p.width);
    float total = 0, squares = 0;
    for (int i = lane; i < p.width; i += 32) total += x[i];
    const float mean = sum_lanes<32>(total) * share;
    for (int i = lane; i < p.width; i += 32) squares += (x[i] - mean) * (x[i] - mean);
    const float scale = 1.0f / sqrtf(sum_lanes<32>(squares) * share + p.eps);
    for (int i = lane; i < p.width; i += 32) {
      p.y[row * p.width + i] = (x[i] - mean) * scale * p.weight[i] + (p.shift ? p.shift[i] : 0.0f);
    }
  });
}

}  // namespace gnomon::kernels
