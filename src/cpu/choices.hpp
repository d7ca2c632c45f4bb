// The CPU's choices: what each word of a Candidate means here. docs/architecture.md tells how the nine switches
// translate.
#pragma once

#include <cstdint>

#include "core/problem.hpp"
#include "plan/candidate.hpp"

namespace gnomon::cpu {

enum class Path { plain, stack };              // the reference's operators | StackPlan
enum class Precision { fp32, bf16_qk, bf16 };  // bf16_qk: the Q and K projections alone; bf16: all six
enum class Partition { sequence, row, head };  // what the workers share a pass by

struct Choices {
  Path path = Path::stack;
  Precision precision = Precision::fp32;
  bool fused_attention = true;
  bool causal_skip = true;
  bool mask_elision = true;
  bool fused_qkv = true;
  bool fused_norm = true;
  bool gemm_gelu = true;
  bool graph = true;  // one parallel region for the whole pass; off: one for each operator
  Partition partition = Partition::sequence;
  int threads = 1;
  std::int64_t slices = 0;  // sequences that go through the whole stack together; 0: all
  std::int64_t chunk = 0;   // rows that go through a layer's row-wise operators together; 0: all
};

Choices parse_choices(const Candidate& candidate);  // caller error on a name or value that the CPU does not have
Candidate to_candidate(const Choices& choices);
Choices plain_choices(int threads);  // every switch off

}  // namespace gnomon::cpu
