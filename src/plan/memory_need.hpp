// What running a plan takes, by kind. The caller's memory_limit bounds all of it: it is the size of a card, or of the
// part of a machine that one model gets.
#pragma once

#include <cstdint>
#include <optional>

#include "core/problem.hpp"
#include "plan/candidate.hpp"

namespace gnomon {

// All in bytes.
struct MemoryNeed {
  std::int64_t tensors = 0;  // the caller's input, output where it is another, and mask
  std::int64_t weights = 0;  // the caller's in fp32, and the copies that the plan's products read
  std::int64_t scratch = 0;

  std::int64_t total() const { return tensors + weights + scratch; }
};

std::int64_t tensor_bytes(const Problem& problem);
// Of all weights, so large an element each.
std::int64_t weight_bytes(const StackConfig& config, std::int64_t element_bytes);

// "needs 812.0 MiB (tensors 512.0 MiB, weights 100.0 MiB, scratch 200.0 MiB), memory_limit is 512.0 MiB"
std::optional<Refusal> refuses_memory(const MemoryNeed& need, const Constraints& constraints);

// What the limit leaves for scratch beside the rest of `need`, 0 at least; `most` without a limit.
std::int64_t room_for_scratch(const MemoryNeed& need, const Constraints& constraints, std::int64_t most);

}  // namespace gnomon
