// One call to a plan of the CPU's own, judged by the float64 oracle.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "core/problem.hpp"
#include "core/weights.hpp"
#include "cpu/arena.hpp"
#include "cpu/choices.hpp"
#include "cpu/product.hpp"
#include "plan/backend.hpp"
#include "support/oracle.hpp"
#include "support/tensors.hpp"

namespace gnomon::test {

// A copy in which `change` (name, values) has been at every tensor.
template <class F>
std::shared_ptr<const Weights> changed(const Weights& weights, F change) {
  auto values = std::make_shared<std::vector<std::vector<float>>>();
  std::vector<NamedTensor> tensors = weights.named();
  for (NamedTensor& tensor : tensors) {
    std::int64_t n = 1;
    for (const std::int64_t size : tensor.shape) n *= size;
    std::vector<float> copy(static_cast<std::size_t>(n));
    std::memcpy(copy.data(), tensor.data, copy.size() * sizeof(float));
    change(tensor.name, copy);
    values->push_back(std::move(copy));
    tensor.data = values->back().data();
  }
  return std::make_shared<const Weights>(Weights::from_tensors(weights.config(), tensors, values));
}

// Weights::random leaves norms at ones and zeros, which would hide a norm that ignores them.
inline std::shared_ptr<const Weights> weights_with_norms(const StackConfig& config, Rng& rng) {
  std::normal_distribution<float> normal(0, 0.3f);
  return changed(Weights::random(config, rng()), [&](const std::string& name, std::vector<float>& values) {
    if (name.find("norm") == std::string::npos) return;
    for (float& value : values) value += normal(rng);
  });
}

struct PlanCase {
  Problem problem;  // problem.mask follows `mask`
  cpu::Choices choices = {};
  std::optional<MaskKind> mask = {};
  Layout input = Layout::contiguous, output = Layout::contiguous;  // in place: the output's
  double scale = 1;
  bool strided_mask = false;
};

inline std::string to_string(const PlanCase& c) {
  return fmt::format("{} {} mask={}{} input={} output={} scale={}", to_string(c.problem),
                     cpu::to_candidate(c.choices).to_string(), c.mask ? name_of(*c.mask) : "none",
                     c.strided_mask ? " strided" : "", name_of(c.input), name_of(c.output), c.scale);
}

// fp32 throughout: a tenth of the contract. bf16: the error of a few rounded operands.
inline Contract tight_contract(cpu::Precision precision) {
  return precision == cpu::Precision::fp32 ? Contract{.abs = 2e-4, .rel = 2e-3, .headroom = 1}
                                           : Contract{.abs = 0.15, .rel = 0.05, .headroom = 1};
}

class PlanBench {
 public:
  PlanBench(PlanCase c, Rng& rng)
      : c_(std::move(c)),
        shape_{c_.problem.batch, c_.problem.seq, c_.problem.config.d_model},
        weights_(weights_with_norms(c_.problem.config, rng)),
        input_(shape_, c_.problem.dtype, c_.problem.inplace ? c_.output : c_.input),
        output_(shape_, c_.problem.dtype, c_.output) {
    c_.problem.mask = c_.mask.has_value();
    if (c_.mask) mask_.emplace(shape_[0], shape_[1], *c_.mask, rng, c_.strided_mask);
    input_.fill_normal(rng, c_.scale);
    work_out();
  }

  // The padded tokens hold what nobody may see.
  void poison_padding(double value) {
    for (std::int64_t b = 0; b < shape_[0]; ++b) {
      for (std::int64_t s = 0; s < shape_[1]; ++s) {
        if (mask_->valid(b, s)) continue;
        for (std::int64_t i = 0; i < shape_[2]; ++i) set_value(input_.view(), b, s, i, value);
      }
    }
    work_out();
  }
  void set_input(std::int64_t b, std::int64_t s, std::int64_t i, double value) {
    set_value(input_.view(), b, s, i, value);
    work_out();
  }

  Call call() const {
    Call call{input_.const_view(), {}, output_.view()};
    if (c_.problem.inplace) call.input = output_.const_view();
    if (mask_) call.mask = mask_->view();
    return call;
  }
  const Problem& problem() const { return c_.problem; }
  std::shared_ptr<const Weights> weights() const { return weights_; }
  cpu::WeightPacks& packs() { return packs_; }
  const TestTensor& output() const { return output_; }
  TestTensor& input() { return input_; }

  // The output's bytes before a run: NaN, or the input when they are one.
  void reset() {
    output_.fill(std::numeric_limits<double>::quiet_NaN());
    if (!c_.problem.inplace) return;
    for (std::int64_t b = 0; b < shape_[0]; ++b) {
      for (std::int64_t s = 0; s < shape_[1]; ++s) {
        for (std::int64_t i = 0; i < shape_[2]; ++i) {
          set_value(output_.view(), b, s, i, value_at(input_.const_view(), b, s, i));
        }
      }
    }
  }

  // Runs on poisoned scratch and output; nothing but the output may be written.
  std::vector<unsigned char> run(Plan& plan) {
    reset();
    const std::vector<unsigned char> input = input_.storage(), outside = output_.outside();
    plan.poison_scratch();
    plan.run(call());
    EXPECT_EQ(input_.storage(), input) << "the input was written";
    EXPECT_EQ(output_.outside(), outside) << "written past the output";
    return output_.storage();
  }
  void expect_right(const Contract& contract) const {
    const Verdict verdict = judge(expected_, output_.const_view(), contract);
    EXPECT_TRUE(verdict.passes(contract)) << to_string(verdict);
  }
  // Only the rows that `wanted` names; what the others hold is taken as it is.
  template <class F>
  void expect_right_where(const Contract& contract, F wanted) const {
    std::vector<double> expected = expected_;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(expected.size()); ++i) {
      const std::int64_t row = i / shape_[2], b = row / shape_[1], s = row % shape_[1];
      if (!wanted(b, s)) expected[static_cast<std::size_t>(i)] = value_at(output_.const_view(), b, s, i % shape_[2]);
    }
    const Verdict verdict = judge(expected, output_.const_view(), contract);
    EXPECT_TRUE(verdict.passes(contract)) << to_string(verdict);
  }
  const std::vector<double>& expected() const { return expected_; }
  const TestMask& mask() const { return *mask_; }

 private:
  void work_out() {
    expected_ = oracle(*weights_, input_.const_view(), mask_ ? std::optional(mask_->view()) : std::nullopt);
  }
  PlanCase c_;
  std::array<std::int64_t, 3> shape_;
  std::shared_ptr<const Weights> weights_;
  cpu::WeightPacks packs_;  // knows weights by their addresses: no longer than the weights themselves
  TestTensor input_, output_;
  std::optional<TestMask> mask_;
  std::vector<double> expected_;
};

}  // namespace gnomon::test
