// A Problem: a StackConfig on a given input. One line of text names it everywhere (CLI, tests, plan store, reports):
//   b64 s100 d128 h4 l3 f512 causal post gelu f32 [mask] [nobias] [finalnorm] [eps=1e-5] [abs=..] [rel=..] [headroom=..]
//   [inplace] @cpu
// Words come in any order; what is left out has the suite's default. Alternatives: bi | causal, pre | post,
// gelu | gelu_tanh | relu, f32 | f16 | bf16, @cpu | @cuda:N.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/contract.hpp"
#include "core/dtype.hpp"
#include "core/stack_config.hpp"
#include "core/tensor.hpp"

namespace gnomon {

struct Problem {
  std::int64_t batch = 1;
  std::int64_t seq = 100;
  StackConfig config;
  DType dtype = DType::f32;  // of input and output
  bool mask = false;         // a padding mask is given
  bool inplace = false;      // output is the input
  Contract contract;
  std::string device = "cpu";  // "cpu" or "cuda:N"

  std::int64_t tokens() const { return batch * seq; }
  std::int64_t elements() const { return tokens() * config.d_model; }
  bool operator==(const Problem&) const = default;
};

// Floating-point operations of one pass: 2 per multiply-add; attention counted for the causal half only when causal.
double flops(const Problem& problem);
double linear_flops(const Problem& problem);  // the six projections alone
double ffn_flops(const Problem& problem);     // the last two of them
// Of the reference path, which computes what a causal mask hides too: 12 passes over the scores and 40 over the
// activation, in fp32.
double plain_flops(const Problem& problem);
double plain_bytes(const Problem& problem);

void check(const Problem& problem);              // caller error with values
std::string to_string(const Problem& problem);   // canonical: parse_problem(to_string(p)) == p
Problem parse_problem(std::string_view text);    // caller error names the offending word and what is allowed

// The problem that `call` poses to a stack. Caller errors: d_model differs from the weights', input and output shapes or
// dtypes differ, an f64 tensor, a mask of another shape, partially overlapping input and output, an output with two
// elements at one address. (A B, S of 0 is a legal problem: the answer is empty.)
Problem problem_of(const StackConfig& config, const Call& call, const Contract& contract, std::string device);

}  // namespace gnomon
