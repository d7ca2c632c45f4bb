// Which candidates the CPU has for a problem, what it refuses, and the cost model. All of it arithmetic on plain
// structs.
#pragma once

#include <optional>
#include <vector>

#include "core/problem.hpp"
#include "cpu/choices.hpp"
#include "plan/candidate.hpp"
#include "plan/memory_need.hpp"

namespace gnomon::cpu {

Choices estimate_choices(const Problem& problem, int threads);
// `choices` with ever smaller slices and row blocks, at last on fewer threads, until their scratch fits into `room`
// bytes or nothing is left to be made smaller.
Choices shrunk_to_fit(const Problem& problem, Choices choices, std::int64_t room);
// `choices` with the forced values, and whatever contradicts those values and is not forced itself brought into line.
Candidate forced_candidate(const Choices& choices, const std::vector<Choice>& forced);
// Of a pass of the reference path, from the measured peak of one core (product_peak) and a stated number of passes.
double plain_seconds(const Problem& problem, int threads);
std::vector<Group> search_groups(const Problem& problem, const Choices& incumbent, int threads);
MemoryNeed memory_need(const Problem& problem, const Choices& choices);
std::optional<Refusal> refuses(const Problem& problem, const Constraints& constraints, const Candidate& candidate);
// On a part of the batch, slices larger than the part, or too few for the workers, are other slices than on the whole.
std::optional<Refusal> unlike_whole(const Problem& part, const Problem& whole, const Choices& choices);
int complexity(const Choices& choices);

}  // namespace gnomon::cpu
