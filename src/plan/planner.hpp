// The planner: takes candidates from a backend, judges them by the contract, measures them with a clock, chooses, and
// reports. It knows no particular candidate and no device. The rules and their reasons: docs/planner.md.
#pragma once

#include <functional>
#include <memory>

#include "plan/backend.hpp"
#include "plan/clock.hpp"
#include "plan/plan_record.hpp"

namespace gnomon {

struct Progress {
  double elapsed = 0, budget = 0;
  int candidates_done = 0;
  std::string now;  // what is being done
};

struct PlannerOptions {
  Effort effort = Effort::measure;
  double budget_seconds = 10;
  Constraints constraints;
  std::function<void(const Progress&)> progress;  // may be empty
  std::function<bool()> cancelled;                // may be empty; true: stop and keep the best so far
};

struct PlanResult {
  PlanRecord record;
  std::unique_ptr<Plan> plan;  // the winner, ready to run the whole problem
};

// Why a stored choice was not bound.
struct NotRevived {
  std::string reason;
  bool broke_contract = false;  // it ran and was wrong; else it was refused, or failed
};

class Planner {
 public:
  Planner(Backend& backend, Clock& clock) : backend_(backend), clock_(clock) {}

  // Plans `problem` on the real `call`, which is only read. Throws when no candidate is left, with the fate of each
  // (Search::fail), and an environment error when not even the plain path fits in memory.
  PlanResult plan(const Problem& problem, const Call& call, const PlannerOptions& options);

  // Binds a stored choice. With `check`, judges it on the call first; null, and `why`, when it is refused or breaks the
  // contract now. A check that passes updates the record's worst error and verified range.
  std::unique_ptr<Plan> revive(const Problem& problem, const Call& call, PlanRecord& record,
                               const Constraints& constraints, bool check, NotRevived& why);

 private:
  Backend& backend_;
  Clock& clock_;
};

}  // namespace gnomon
