// Problems whose scores are far from zero: for ways to a softmax that take exponentials as they are.
#pragma once

#include <cmath>
#include <deque>

#include "cuda/resident_problem.hpp"

namespace gnomon::test {

// The problem, without a mask, with biases of Q and K that add about `powers` of two to each score's exponential. It
// changes no softmax.
inline ResidentProblem with_shifted_scores(const Problem& problem, std::uint64_t seed, double powers) {
  struct Memory {
    std::shared_ptr<const Weights> drawn;
    std::deque<std::vector<float>> biases;
  };
  ResidentProblem p(problem, MaskKind::all_true, seed);
  const auto memory = std::make_shared<Memory>(Memory{p.weights, {}});
  const double each =
      std::sqrt(std::abs(powers) * std::log(2) / std::sqrt(static_cast<double>(problem.config.head_dim())));
  std::vector<NamedTensor> tensors = p.weights->named();
  for (NamedTensor& tensor : tensors) {
    const bool of_q = tensor.name.ends_with("q_proj.bias"), of_k = tensor.name.ends_with("k_proj.bias");
    if (!of_q && !of_k) continue;
    const auto* const first = static_cast<const float*>(tensor.data);
    std::vector<float>& shifted = memory->biases.emplace_back(first, first + tensor.shape[0]);
    for (float& v : shifted) v += static_cast<float>(of_k && powers < 0 ? -each : each);
    tensor.data = shifted.data();
  }
  EXPECT_EQ(memory->biases.size(), 2 * p.weights->layers().size()) << "the stack has no biases to shift scores by";
  p.weights = std::make_shared<const Weights>(Weights::from_tensors(problem.config, tensors, memory));
  p.expected = oracle(*p.weights, p.input.const_view(), std::nullopt);
  p.name += fmt::format(", scores shifted by 2^{}", powers);
  return p;
}

}  // namespace gnomon::test
