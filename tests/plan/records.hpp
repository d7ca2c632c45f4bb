// Plan records to store, with every field away from its default.
#pragma once

#include <cmath>
#include <string>

#include "plan/plan_record.hpp"

namespace gnomon::fake {

inline PlanRecord record_of(const std::string& problem, const std::string& winner = "path=fast slices=4") {
  PlanRecord record;
  record.problem = parse_problem(problem);
  record.winner = Candidate::parse(winner);
  record.effort = Effort::exhaustive;
  record.seconds = 1.25e-3;
  record.plain_seconds = 5e-3;
  record.worst = 0.44;
  record.verified_range = {0.5, 4.5};
  record.weights_fingerprint = 0xfedcba9876543210u;
  record.calibrated_on = "b1";
  record.budget_exhausted = true;
  record.budget_seconds = 4;
  record.planning_seconds = 3.5;
  record.timing_runs = 123456789012;
  record.scratch_bytes = 5 << 20;
  record.bound = "arithmetic: 85 % of the machine's products";
  record.notes = {"only the part was checked", "\"quotes\" and \\ and \xc3\xa9"};
  record.made_under = {{"driver", "535"}};
  CandidateReport won{.candidate = record.winner,
                      .outcome = Outcome::won,
                      .reason = "8 pairs",
                      .group = "slices",
                      .samples = 8,
                      .seconds = 1.25e-3,
                      .seconds_low = 1.2e-3,
                      .seconds_high = 1.3e-3,
                      .ratio = 0.25,
                      .ratio_low = 0.24,
                      .ratio_high = 0.26,
                      .worst = 0.44,
                      .approximations = {"q_proj,k_proj in bf16"}};
  CandidateReport rejected{.candidate = Candidate::parse("path=bad slices=1"),
                           .outcome = Outcome::rejected,
                           .reason = "before it was timed: wrote outside the output",
                           .group = "path",
                           .worst = INFINITY};
  CandidateReport untimed{
      .candidate = Candidate::parse("path=late slices=1"), .reason = "the budget of 1 s ended first", .group = "path"};
  record.candidates = {won, rejected, untimed};
  return record;
}

}  // namespace gnomon::fake
