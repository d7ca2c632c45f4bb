// The bench that a planning works on: the whole call, or the part of it that stands for the whole.
#pragma once

#include <memory>
#include <string>

#include "plan/backend.hpp"
#include "plan/plan_record.hpp"

namespace gnomon {

struct Bench {
  Problem problem;
  std::unique_ptr<Workbench> workbench;
};

// Starts with `part` and takes ever smaller parts while memory fails. Environment error when the smallest does not fit.
Bench open_bench(Backend& backend, const Call& call, Problem part);

// The contract that a candidate for `problem` is judged by on `shown` of its elements. One that approximates must keep
// more room the fewer elements it shows: its error is a random draw for each element, and the largest of n normal draws
// grows as sqrt(2 ln n). The room left is for the largest of a thousand calls of the whole problem.
Contract judging_contract(const Backend& backend, const Candidate& candidate, const Problem& problem,
                          std::int64_t shown);

std::string describe_failure(const Verdict& verdict, const Contract& contract);

// Writes down that it failed: it is rejected. An approximation that is too coarse, or a contract tighter than usual, is
// what the caller may have asked for; an exact candidate that is wrong, and any that writes out of bounds, is our bug.
void reject(CandidateReport& its, const std::string& when, const Verdict& verdict, const Contract& contract);

}  // namespace gnomon
