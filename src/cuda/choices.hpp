// The CUDA backend's choices: what each word of a Candidate means here. docs/cuda.md tells how the switches translate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/dtype.hpp"
#include "plan/candidate.hpp"

namespace gnomon::cuda {

enum class Path { plain, stack, resident };  // the reference's operators | StackPass | ResidentPass
enum class Precision { fp32, tf32, fp16, bf16 };
enum class Sublayer { attention, ffn };

struct Choices {
  Path path = Path::stack;
  // Of the attention sublayer's operations, and of the FFN's: errors of attention pass through a softmax, and a stack
  // may bear the one in 16 bits and not the other.
  Precision precision = Precision::fp32;
  std::optional<Precision> ffn_precision;  // none: as `precision`, and then it is never named
  bool fused_attention = true;
  // Of the fused attention, or the form of the resident kernel (attention.hpp and resident.hpp name them); "first": the
  // one to begin with; "cudnn": the library's fused attention in place of ours.
  std::string tile = "first";
  bool causal_skip = true;
  bool mask_elision = true;
  bool fused_qkv = true;
  bool fused_norm = true;
  bool gemm_gelu = true;
  bool packed_residual = false;  // the residual stream as the products' 16-bit rows and a byte more (remainder.cuh)
  bool graph = true;
  // Which of cuBLASLt's suggestions each product takes, best guess first.
  int algo_qkv = 0, algo_out = 0, algo_fc1 = 0, algo_fc2 = 0;
  bool compact = false;     // less scratch: attention's output over the queries, the FFN's rows in parts
  std::int64_t slices = 0;  // sequences that go through the whole stack together; 0: all
};

// Of the products' operands; all statistics are fp32, and the residual stream is where it is not packed.
constexpr DType operand_type(Precision precision) {
  return precision == Precision::fp16 ? DType::f16 : precision == Precision::bf16 ? DType::bf16 : DType::f32;
}
constexpr bool is_narrow(Precision precision) { return operand_type(precision) != DType::f32; }

const char* name_of(Precision precision);
constexpr Precision precision_of(const Choices& c, Sublayer sublayer) {
  return sublayer == Sublayer::ffn ? c.ffn_precision.value_or(c.precision) : c.precision;
}
constexpr DType operand_type(const Choices& c, Sublayer sublayer) { return operand_type(precision_of(c, sublayer)); }
constexpr bool all_fp32(const Choices& c) {
  return c.precision == Precision::fp32 && precision_of(c, Sublayer::ffn) == Precision::fp32;
}
// The 16-bit type of operands, if any are: a candidate has at most one.
constexpr std::optional<DType> narrow_type(const Choices& c) {
  for (const Sublayer sublayer : {Sublayer::attention, Sublayer::ffn})
    if (operand_type(c, sublayer) != DType::f32) return operand_type(c, sublayer);
  return {};
}

inline constexpr int kMostAlgorithms = 12;

Choices parse_choices(const Candidate& candidate);  // caller error on a name or value that this backend does not have
Candidate to_candidate(const Choices& choices);
Choices plain_choices();  // every switch off

}  // namespace gnomon::cuda
