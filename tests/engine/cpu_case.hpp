// One call to a real engine on the CPU, judged by the float64 oracle.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "engine/engine.hpp"
#include "support/oracle.hpp"
#include "support/temporary_directory.hpp"
#include "support/tensors.hpp"

namespace gnomon::test {

struct CpuCase {
  Problem problem;  // problem.mask follows `mask`
  std::optional<MaskKind> mask = {};
  Layout input = Layout::contiguous, output = Layout::contiguous;  // in place: the output's
  double scale = 1;
  std::uint64_t seed = 1;
};
inline Problem problem_of(const CpuCase& c) {
  Problem problem = c.problem;
  problem.mask = c.mask.has_value();
  return problem;
}

inline std::string to_string(const CpuCase& c) {
  return fmt::format("{} mask={} input={} output={} scale={} seed={}", to_string(problem_of(c)),
                     c.mask ? name_of(*c.mask) : "none", name_of(c.input), name_of(c.output), c.scale, c.seed);
}

inline std::array<std::int64_t, 3> shape_of(const CpuCase& c) {
  return {c.problem.batch, c.problem.seq, c.problem.config.d_model};
}

// The caller's side of a case: weights, tensors, and what the oracle says.
class Caller {
 public:
  explicit Caller(const CpuCase& c);
  Caller(const CpuCase& c, Weights weights);

  Call call() const;
  const Weights& weights() const { return weights_; }
  TestTensor& input() { return c_.problem.inplace ? output_ : input_; }
  TestTensor& output() { return output_; }
  TestMask* mask() { return mask_ ? &*mask_ : nullptr; }
  void work_out();  // after a change of the input or the mask

  // Runs and judges; in place, the input is put back first.
  void expect_right_answer(Engine& engine);
  // The same bits on a second call; nothing but the output written.
  void expect_right_and_repeatable(Engine& engine);
  const std::vector<double>& expected() const { return expected_; }

 private:
  void restore();

  const CpuCase c_;
  const Weights weights_;
  Rng rng_;
  TestTensor input_, output_;
  std::optional<TestMask> mask_;
  std::vector<double> original_, expected_;
};

inline Caller::Caller(const CpuCase& c) : Caller(c, Weights::random(c.problem.config, c.seed)) {}

inline Caller::Caller(const CpuCase& c, Weights weights)
    : c_(c),
      weights_(std::move(weights)),
      rng_(c.seed),
      input_(shape_of(c), c.problem.dtype, c.input),
      output_(shape_of(c), c.problem.dtype, c.output) {
  if (c.mask) mask_.emplace(c.problem.batch, c.problem.seq, *c.mask, rng_, c.seed % 2 == 1);
  input().fill_normal(rng_, c.scale);
  work_out();
}

inline Call Caller::call() const {
  const TensorView& source = c_.problem.inplace ? output_.view() : input_.view();
  return {as_const(source), mask_ ? std::optional(mask_->view()) : std::nullopt, output_.view(), nullptr};
}

inline void Caller::work_out() {
  original_ = input().values();
  expected_ = oracle(weights_, call().input, call().mask);
}

inline void Caller::restore() {
  auto value = original_.begin();
  for (std::int64_t b = 0; b < c_.problem.batch; ++b) {
    for (std::int64_t s = 0; s < c_.problem.seq; ++s) {
      for (std::int64_t i = 0; i < c_.problem.config.d_model; ++i) set_value(output_.view(), b, s, i, *value++);
    }
  }
}

inline void Caller::expect_right_answer(Engine& engine) {
  if (c_.problem.inplace) restore();
  engine.forward(call());
  const Verdict verdict = judge(expected_, output_.const_view(), c_.problem.contract);
  const auto record = engine.explain(problem_of(c_));
  EXPECT_TRUE(verdict.fault.empty() && verdict.worst <= 1)
      << to_string(verdict) << "\n  " << to_string(c_) << "\n  " << (record ? record->winner.to_string() : "no plan");
}

inline void Caller::expect_right_and_repeatable(Engine& engine) {
  const auto weights_before = weights_.fingerprint();
  const auto outside = output_.outside();
  const auto read_only = input_.storage();
  expect_right_answer(engine);
  const auto first = output_.storage();
  if (!c_.problem.inplace) output_.fill(0);
  expect_right_answer(engine);
  EXPECT_EQ(output_.storage(), first) << "another answer the second time: " << to_string(c_);
  EXPECT_EQ(output_.outside(), outside) << "written outside the output: " << to_string(c_);
  EXPECT_EQ(input_.storage(), read_only) << "the input was written: " << to_string(c_);
  EXPECT_EQ(weights_.fingerprint(), weights_before);
}

// In memory only, with a tiny planning budget.
inline EngineOptions quick_options() {
  EngineOptions options;
  options.plan_directory = "";
  options.budget_seconds = 0.03;
  return options;
}

// Builds an engine with these options and expects the case to come out right, twice.
inline void expect_right(const CpuCase& c, const EngineOptions& options = quick_options()) {
  SCOPED_TRACE(to_string(c));
  try {
    Caller caller(c);
    Engine engine(caller.weights(), options);
    caller.expect_right_and_repeatable(engine);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

}  // namespace gnomon::test
