// What planning found out about a problem: everything `explain` prints and the plan store keeps. Never weights.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/problem.hpp"
#include "plan/candidate.hpp"
#include "plan/input_range.hpp"

namespace gnomon {

enum class Effort { estimate, measure, exhaustive, stored };

// The fate of one candidate.
enum class Outcome {
  won,
  lost,       // measured, slower with confidence
  tied,       // the interval of the paired ratio held 1; the simpler or more precise was kept
  halved,     // left early in successive halving
  rejected,   // broke the contract, threw, wrote out of bounds
  refused,    // cannot run this problem here
  untimed,    // the budget ended first
  estimated,  // chosen without timing
};

std::string_view name_of(Effort effort);
std::string_view name_of(Outcome outcome);

struct CandidateReport {
  Candidate candidate;
  Outcome outcome = Outcome::untimed;
  std::string reason;  // numbers included
  std::string group;   // the step of the search that proposed it
  int samples = 0;
  double seconds = 0;                               // median of one pass; 0: never timed
  double seconds_low = 0, seconds_high = 0;         // quartiles
  double ratio = 0, ratio_low = 0, ratio_high = 0;  // time over the incumbent's, pair by pair: median and 95 % interval
  double worst = -1;                                // of the contract's limit; negative: never checked
  std::vector<std::string> approximations;
  ErrorKind blame = ErrorKind::environment;  // when it is out: whose fault; not kept in files
};

struct PlanRecord {
  Problem problem;
  std::string constraints;
  Candidate winner;
  Effort effort = Effort::measure;
  double seconds = 0;        // the winner's median
  double plain_seconds = 0;  // the plain path's, same run; 0: not timed
  double worst = 0;
  InputRange verified_range;              // the inputs that the winner was verified on
  std::uint64_t weights_fingerprint = 0;  // of the weights it was last checked with
  std::string calibrated_on;              // the problem that was timed when the whole was too large; else empty
  bool budget_exhausted = false;          // or the caller cut it short, which a note tells
  double budget_seconds = 0;              // that planning had; 0 when the caller cut it short
  double planning_seconds = 0;
  std::int64_t timing_runs = 0;
  std::int64_t scratch_bytes = 0;
  std::string bound;
  std::vector<std::string> notes;  // what else a reader must know: only a part was checked, a winner fell, ...
  // Environment::notes when it was planned, kept by the plan store. Another driver than today's: re-check before use.
  std::map<std::string, std::string> made_under;
  std::vector<CandidateReport> candidates;  // in the order they were met

  // Whether planning with this effort and budget would find nothing more. A search that time ended is worth repeating
  // with twice its time, one that the caller cut short with any.
  bool satisfies(Effort wanted, double budget) const;
};

void to_json(nlohmann::json& json, const PlanRecord& record);
void to_json(nlohmann::ordered_json& json, const PlanRecord& record);  // in reading order
void from_json(const nlohmann::json& json, PlanRecord& record);        // throws on anything malformed
std::string explain_text(const PlanRecord& record);                    // the table `gnomon explain` prints

}  // namespace gnomon
