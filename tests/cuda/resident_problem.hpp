// A problem for the resident stack with all that a run of it needs, and what the oracle says of it: for the device and
// for the emulator.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/contract.hpp"
#include "core/problem.hpp"
#include "core/weights.hpp"
#include "support/oracle.hpp"
#include "support/tensors.hpp"

namespace gnomon::test {

struct ResidentProblem {
  // `size`: of the input, whose square the first scores grow with.
  ResidentProblem(const Problem& of, MaskKind kind, std::uint64_t seed, float size = 1)
      : problem(of),
        shape{of.batch, of.seq, of.config.d_model},
        name(fmt::format("{}, mask {}, seed {}, input N(0, {})", to_string(of), of.mask ? name_of(kind) : "none", seed,
                         size)),
        weights(std::make_shared<const Weights>(Weights::random(of.config, seed))),
        input(shape) {
    Rng rng(seed);
    input.fill_normal(rng, size);
    std::optional<TestMask> test_mask;
    if (problem.mask) {
      test_mask.emplace(problem.batch, problem.seq, kind, rng);
      for (std::int64_t b = 0; b < problem.batch; ++b) {
        for (std::int64_t s = 0; s < problem.seq; ++s) {
          const bool valid = test_mask->valid(b, s);
          mask.push_back(valid);
          // What is masked must not be seen.
          for (std::int64_t i = 0; i < shape[2] && !valid; ++i)
            set_value(input.view(), b, s, i, std::numeric_limits<float>::quiet_NaN());
        }
      }
    }
    expected = oracle(*weights, input.const_view(), test_mask ? std::optional(test_mask->view()) : std::nullopt);
  }

  void expect_right(const std::vector<double>& got, const std::string& who) const {
    const Verdict verdict = compare(ConstTensorView::contiguous(got.data(), DType::f64, shape),
                                    ConstTensorView::contiguous(expected.data(), DType::f64, shape), {});
    EXPECT_LE(verdict.worst, 1) << who << ": element " << verdict.first_bad << " is " << verdict.bad_value
                                << ", expected " << verdict.bad_reference;
  }

  Problem problem;
  std::array<std::int64_t, 3> shape;
  std::string name;
  std::shared_ptr<const Weights> weights;
  TestTensor input;
  std::vector<std::uint8_t> mask;  // contiguous, where there is one
  std::vector<double> expected;    // row-major
};

}  // namespace gnomon::test
