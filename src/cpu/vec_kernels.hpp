// Our own vector code: one source (Google Highway), compiled for several instruction sets, chosen once at start.
// GNOMON_ISA = sse4 | avx2 | avx512 | neon forces a set that the machine has.
//
// Everything here is single-threaded and works on fp32 rows in memory: a row of `d` floats starts every `ld` floats.
#pragma once

#include <cstdint>
#include <string_view>

namespace gnomon::cpu {

// One head's attention for the query rows [q_begin, q_end) of a sequence of `seq` tokens.
// q, k, v, out point at the head's first column of row 0; rows are `ld*` floats apart. `out` may be `q`.
struct HeadAttention {
  const float* q;
  const float* k;
  const float* v;
  float* out;
  std::int64_t ldq, ldk, ldv, ldo;
  std::int64_t seq, head_dim;
  std::int64_t q_begin, q_end;
  float scale;  // 1/sqrt(head_dim)
  bool causal;
  bool causal_skip;  // do not compute tiles above the diagonal (causal only)
  // Mask elision: the positions of the valid keys, ascending; null = all. Keys that are not listed are never read.
  const std::int32_t* keys;
  std::int64_t n_keys;
  // Without elision: seq bytes, nonzero = valid, applied to the scores; null = none.
  const std::uint8_t* key_valid;
  std::int64_t key_valid_stride;
  float* scratch;  // head_attention_scratch() floats, 64-byte aligned
};

struct VecKernels {
  std::string_view isa;
  std::int64_t lanes;  // fp32 lanes of a vector

  std::int64_t (*head_attention_scratch)(std::int64_t seq, std::int64_t head_dim);
  void (*head_attention)(const HeadAttention& a);

  // y = LayerNorm(x) * weight + bias (bias may be null); statistics in fp32, two passes. y may be x.
  void (*layer_norm)(const float* x, std::int64_t ldx, float* y, std::int64_t ldy, std::int64_t rows, std::int64_t d,
                     const float* weight, const float* bias, float eps);
  void (*add)(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* y, std::int64_t ldy,
              std::int64_t rows, std::int64_t d);
  // y = f(x), element by element; y may be x.
  void (*gelu_erf)(const float* x, float* y, std::int64_t n);
  void (*gelu_tanh)(const float* x, float* y, std::int64_t n);
  void (*relu)(const float* x, float* y, std::int64_t n);
  void (*scale)(const float* x, float* y, std::int64_t n, float factor);
  // y = softmax(x) over each row; a row of only -inf gives zeros. y may be x.
  void (*softmax)(const float* x, std::int64_t ldx, float* y, std::int64_t ldy, std::int64_t rows, std::int64_t n);

  void (*from_f16)(const std::uint16_t* x, float* y, std::int64_t n);
  void (*from_bf16)(const std::uint16_t* x, float* y, std::int64_t n);
  void (*to_f16)(const float* x, std::uint16_t* y, std::int64_t n);   // round to nearest even
  void (*to_bf16)(const float* x, std::uint16_t* y, std::int64_t n);  // round to nearest even, NaN stays NaN
  // The root mean square of a row of d floats: NaN where it holds one, infinite where the sum of squares overflows.
  float (*row_rms)(const float* x, std::int64_t d);
  // The largest finite |x|, and whether every element is finite.
  float (*max_abs_finite)(const float* x, std::int64_t n, bool* all_finite);
};

// The kernels of the best instruction set here, or of the one GNOMON_ISA names (environment error when it is not to be
// had).
const VecKernels& vec_kernels();

}  // namespace gnomon::cpu
