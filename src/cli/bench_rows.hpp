// The rows of a bench: what is to be measured, and what was found.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/first_calls.hpp"
#include "core/weights.hpp"
#include "engine/engine.hpp"
#include "plan/statistics.hpp"

namespace gnomon::cli {

struct BenchRow {
  std::string id;
  Problem problem;
  std::string weights;  // a safetensors file; empty: random ones
};

struct RowResult {
  std::string not_run;  // why there is nothing below; empty: it ran
  bool failed = false;  // it broke the contract, or Gnomon broke

  std::optional<FirstCalls> first_calls;  // then nothing below was measured

  Candidate winner;
  std::vector<std::string> approximations;
  std::string bound;
  bool from_store = false;
  double planning_seconds = 0;  // in this run

  Quartiles plan;  // seconds of Engine::forward
  int samples = 0;
  std::optional<Quartiles> plain;
  std::string no_plain;  // why the reference path was not timed
  Interval speedup;      // over the reference path, pair by pair
  // Seconds of the host alone: of a pass without its kernels on the CPU, of a whole call without the driver's part on a
  // device; and there until a call returns, whose kernels still run.
  std::optional<Quartiles> overhead, host_call;

  double bare_flops = 0;   // per second, of the bare products; 0: not measured
  double bare_spread = 0;  // of their rate over this row's time, as share of bare_flops
  Verdict verdict;
  std::int64_t scratch_bytes = 0, packed_bytes = 0;
};

std::vector<BenchRow> suite_rows(const std::string& json, const std::string& source);
BenchRow problem_row(const std::string& text);
// "NAME=PATH": the problem is the weights' structure on `shape` ("b32 s128 mask").
BenchRow model_row(const std::string& argument, const std::string& shape);

double flops_per_second(const BenchRow& row, const RowResult& result);
double activation_bytes(const Problem& problem);

}  // namespace gnomon::cli
