#include "plan/memory_need.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/memory.hpp"

namespace gnomon {
namespace {

std::string text_of(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

}  // namespace

std::int64_t tensor_bytes(const Problem& problem) {
  const auto one = problem.elements() * static_cast<std::int64_t>(size_of(problem.dtype));
  return (problem.inplace ? one : 2 * one) + (problem.mask ? problem.tokens() : 0);
}

std::int64_t weight_bytes(const StackConfig& config, std::int64_t element_bytes) {
  const std::int64_t d = config.d_model, f = config.d_ff;
  const std::int64_t biases = config.bias ? 5 * d + f : 0;
  const std::int64_t layer = 4 * d * d + 2 * d * f + biases + 4 * d;
  return element_bytes * (config.layers * layer + (config.final_norm ? 2 * d : 0));
}

std::optional<Refusal> refuses_memory(const MemoryNeed& need, const Constraints& constraints) {
  if (!constraints.memory_limit || need.total() <= *constraints.memory_limit) return {};
  return Refusal{fmt::format("needs {} (tensors {}, weights {}, scratch {}), memory_limit is {}", text_of(need.total()),
                             text_of(need.tensors), text_of(need.weights), text_of(need.scratch),
                             text_of(*constraints.memory_limit))};
}

std::int64_t room_for_scratch(const MemoryNeed& need, const Constraints& constraints, std::int64_t most) {
  if (!constraints.memory_limit) return most;
  return std::clamp<std::int64_t>(*constraints.memory_limit - need.tensors - need.weights, 0, most);
}

}  // namespace gnomon
