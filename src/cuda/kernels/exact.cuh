// The whole stack in fp32, a block to a sequence: the answer where a pass of reduced precision ahead of it raised its
// flag. Where it did not, the launch leaves at once, which takes a third of what a graph's condition does, needs no
// driver that has them, and goes into any capture. Written for clarity, with the reference's defects and limits
// (plain_ops.cuh): keys that a query does not see add nothing, whatever they hold.
#pragma once

#include "activation.cuh"
#include "reduce.cuh"
#include "vec.cuh"

namespace gnomon::kernels {

constexpr int kExactThreads = 256, kExactWarps = kExactThreads / 32;

// Two operands' part of a product: 64 rows each, 16 deep, a column more against bank conflicts.
struct ExactTile {
  static constexpr int kRows = 64, kDepth = 16;
  float a[kDepth][kRows + 1], b[kDepth][kRows + 1];
};

// finish(sum over k of from[r][k] * weight[c][k], r, c) of all rows and columns; a thread has four by four of a tile.
template <typename Finish>
__device__ __forceinline__ void multiply_rows(ExactTile& tile, const float* from, int rows, int depth,
                                              const float* weight, int columns, Finish&& finish) {
  constexpr int kRows = ExactTile::kRows, kDepth = ExactTile::kDepth;
  const int thread = static_cast<int>(threadIdx.x), row = thread / 16 * 4, column = thread % 16 * 4;
#pragma unroll 1
  for (int r0 = 0; r0 < rows; r0 += kRows) {
#pragma unroll 1
    for (int c0 = 0; c0 < columns; c0 += kRows) {
      float sums[4][4] = {};
#pragma unroll 1
      for (int k0 = 0; k0 < depth; k0 += kDepth) {
        __syncthreads();  // what these read was written by others, and the tile has been read
        for (int i = thread; i < kRows * kDepth; i += kExactThreads) {
          const int line = i / kDepth, k = i % kDepth;
          const bool deep = k0 + k < depth;
          tile.a[k][line] = deep && r0 + line < rows ? from[i64{r0 + line} * depth + k0 + k] : 0.0f;
          tile.b[k][line] = deep && c0 + line < columns ? weight[i64{c0 + line} * depth + k0 + k] : 0.0f;
        }
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < kDepth; ++k) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(tile.a[k][row + i], tile.b[k][column + j], sums[i][j]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (r0 + row + i < rows && c0 + column + j < columns) finish(sums[i][j], r0 + row + i, c0 + column + j);
        }
      }
    }
  }
  __syncthreads();
}

// One sequence in the block's scratch.
template <typename T, typename Function>
struct ExactSequence {
  const ExactStack& p;
  ExactTile& tile;
  float* scores;  // of the warp's query
  i64 sequence;
  float *x, *a, *wide;  // [seq][width] the residual stream, an operand, and [seq][3 width] or [seq][hidden]

  static __device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x / 32); }
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ __forceinline__ const float* weights(int layer, i32 at) const {
    return at < 0 ? nullptr : p.weights + layer * p.layer_stride + at;
  }

  // to = LayerNorm(x); the two may be one.
  __device__ __forceinline__ void norm(float* to, const float* gain, const float* shift) const {
    const float share = 1.0f / static_cast<float>(p.width);
    __syncthreads();
    for (int r = warp(); r < p.seq; r += kExactWarps) {
      const float* from = x + i64{r} * p.width;
      float total = 0, squares = 0;
      for (int i = lane(); i < p.width; i += 32) total += from[i];
      const float mean = sum_lanes<32>(total) * share;
      for (int i = lane(); i < p.width; i += 32) squares += (from[i] - mean) * (from[i] - mean);
      const float scale = 1.0f / sqrtf(sum_lanes<32>(squares) * share + p.eps);
      for (int i = lane(); i < p.width; i += 32) {
        to[i64{r} * p.width + i] = (from[i] - mean) * scale * gain[i] + (shift ? shift[i] : 0.0f);
      }
    }
    __syncthreads();
  }

  // a = attention of wide's Q, K, V: a warp to a query of a head.
  __device__ __forceinline__ void attend() const {
    const int head_dim = p.width / p.heads, row = 3 * p.width;
    const float scale = 1.0f / sqrtf(static_cast<float>(head_dim)), none = __int_as_float(0xff800000);
    for (int unit = warp(); unit < p.heads * p.seq; unit += kExactWarps) {
      const int head = unit / p.seq, query = unit % p.seq, end = p.causal ? query + 1 : p.seq;
      const float* q = wide + i64{query} * row + head * head_dim;
      float greatest = none;
      for (int k = lane(); k < end; k += 32) {
        float sum = none;
        if (is_valid(p.mask, sequence, k)) {
          const float* key = wide + i64{k} * row + p.width + head * head_dim;
          sum = 0;
          for (int f = 0; f < head_dim; ++f) sum = fmaf(q[f], key[f], sum);
          sum *= scale;
        }
        scores[k] = sum;
        greatest = fmaxf(greatest, sum);
      }
      greatest = max_lanes<32>(greatest);
      if (greatest == none) greatest = 0;
      float total = 0;
      for (int k = lane(); k < end; k += 32) {
        scores[k] = expf(scores[k] - greatest);
        total += scores[k];
      }
      total = sum_lanes<32>(total);
      const float share = total == 0 ? 0 : 1 / total;
      __syncwarp();
      for (int f = lane(); f < head_dim; f += 32) {
        float sum = 0;
        for (int k = 0; k < end; ++k) {
          if (is_valid(p.mask, sequence, k))
            sum = fmaf(scores[k] * share, wide[i64{k} * row + 2 * p.width + head * head_dim + f], sum);
        }
        a[i64{query} * p.width + head * head_dim + f] = sum;
      }
      __syncwarp();
    }
    __syncthreads();
  }

  // x += from * weight^T + bias
  __device__ __forceinline__ void add_product(const float* from, int depth, const float* weight, const float* bias) {
    multiply_rows(tile, from, p.seq, depth, weight, p.width,
                  [&](float sum, int r, int c) { x[i64{r} * p.width + c] += sum + (bias ? bias[c] : 0.0f); });
  }

  __device__ __forceinline__ void run_layer(int layer) {
    const auto at = [&](i32 offset) { return weights(layer, offset); };
    if (p.pre_norm) norm(a, at(p.norm1), at(p.shift1));
    const float* bias = at(p.bias_qkv);
    multiply_rows(tile, p.pre_norm ? a : x, p.seq, p.width, at(p.qkv), 3 * p.width,
                  [&](float sum, int r, int c) { wide[i64{r} * 3 * p.width + c] = sum + (bias ? bias[c] : 0.0f); });
    attend();
    add_product(a, p.width, at(p.out), at(p.bias_out));
    if (p.pre_norm) {
      norm(a, at(p.norm2), at(p.shift2));
    } else {
      norm(x, at(p.norm1), at(p.shift1));
    }
    bias = at(p.bias_fc1);
    multiply_rows(tile, p.pre_norm ? a : x, p.seq, p.width, at(p.fc1), p.hidden, [&](float sum, int r, int c) {
      wide[i64{r} * p.hidden + c] = Function::of(sum + (bias ? bias[c] : 0.0f));
    });
    add_product(wide, p.hidden, at(p.fc2), at(p.bias_fc2));
    if (!p.pre_norm) norm(x, at(p.norm2), at(p.shift2));
  }

  __device__ __forceinline__ void run() {
    const int elements = p.seq * p.width;
    const RowStrides &in = p.input_strides, &out = p.output_strides;
    const T* from = static_cast<const T*>(p.input) + sequence * in.sequence;
    T* to = static_cast<T*>(p.output) + sequence * out.sequence;
    for (int i = static_cast<int>(threadIdx.x); i < elements; i += kExactThreads)
      x[i] = to_float(from[i / p.width * in.token + i % p.width * in.element]);
    __syncthreads();
    for (int layer = 0; layer < p.layers; ++layer) run_layer(layer);
    if (p.final_gain) norm(x, p.final_gain, p.final_shift);
    for (int i = static_cast<int>(threadIdx.x); i < elements; i += kExactThreads)
      to[i / p.width * out.token + i % p.width * out.element] = from_float<T>(x[i]);
    __syncthreads();
  }
};

// Blocks take sequences in turn. The last one to end lowers the flag: by then all have read it.
template <typename T, typename Function>
__global__ void __launch_bounds__(kExactThreads, 1) exact_stack(const ExactStack p) {
  __shared__ ExactTile tile;
  extern __shared__ __align__(128) unsigned char shared[];
  if (*static_cast<const volatile u32*>(p.flags) == 0) return;
  const i64 rows = p.seq;
  float* const x = p.scratch + blockIdx.x * p.scratch_block;
  for (i64 sequence = blockIdx.x; sequence < p.batch; sequence += gridDim.x) {
    ExactSequence<T, Function>{p,
                               tile,
                               reinterpret_cast<float*>(shared) + threadIdx.x / 32 * p.seq,
                               sequence,
                               x,
                               x + rows * p.width,
                               x + rows * 2 * p.width}
        .run();
  }
  if (threadIdx.x != 0 || atomicAdd(p.ended, 1u) != gridDim.x - 1) return;
  *p.ended = 0;
  *p.flags = 0;
  atomicAdd(p.answered, 1u);
}

}  // namespace gnomon::kernels
