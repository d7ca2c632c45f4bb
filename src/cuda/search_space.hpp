// Which candidates there are for a problem on a device, in what order they are tried, and which cannot run.
#pragma once

#include <optional>
#include <vector>

#include "core/problem.hpp"
#include "cuda/choices.hpp"
#include "cuda/device.hpp"

namespace gnomon::cuda {

Choices estimate_choices(const Problem& problem, const Constraints& constraints, const DeviceProperties& device);
Choices estimate_stack(const Problem& problem, const Constraints& constraints, const DeviceProperties& device);
Candidate forced_candidate(const Choices& choices, const std::vector<Choice>& forced);
std::vector<Group> search_groups(const Problem& problem, const Choices& incumbent, const DeviceProperties& device);
std::optional<Refusal> refuses(const Problem& problem, const Constraints& constraints, const Candidate& candidate,
                               const DeviceProperties& device);
std::optional<Refusal> unlike_whole(const Problem& part, const Problem& whole, const Choices& choices);
// Of the pass and of what stands behind it.
std::size_t scratch_bytes(const Problem& problem, const Choices& choices, const DeviceProperties& device);
// What answers the calls that a plan of reduced precision must not: exact in everything, as fast as fp32 allows.
Choices fallback_choices(const Problem& problem, const Choices& choices, const DeviceProperties& device);
// Query rows whose scores a fallback without fused attention stores at a time.
std::int64_t fallback_queries(const Problem& problem, const Choices& choices);

}  // namespace gnomon::cuda
