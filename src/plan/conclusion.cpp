#include "plan/conclusion.hpp"

#include <algorithm>
#include <new>

#include "core/error.hpp"

namespace gnomon {

Conclusion::Conclusion(Backend& backend, Clock& clock, const Problem& problem, const Call& call, const Bench& bench,
                       double reference_seconds, double budget_end, const PlannerOptions& options)
    : backend_(backend),
      clock_(clock),
      problem_(problem),
      call_(call),
      bench_(bench),
      options_(options),
      budget_end_(budget_end),
      range_(bench.workbench->input_range()) {
  if (!part()) return;
  // The reference once more, a pass of the winner that is hardly slower, and the comparison of every element.
  const double scale = backend.estimate_plain_seconds(problem) / backend.estimate_plain_seconds(bench.problem);
  whole_seconds_ = 2.5 * scale * reference_seconds;
  judge_whole_ = whole_seconds_ < options.budget_seconds / 3;
}

std::unique_ptr<Plan> Conclusion::conclude(Contest& contest, Search& search) {
  for (;;) {
    Contender& winner = search.incumbent();
    if (contest.recheck(winner)) {
      if (!part()) return std::move(winner.plan);
      winner.plan.reset();
      if (std::unique_ptr<Plan> plan = bind_whole(contest.report(winner))) return plan;
    }
    if (!search.step_down()) search.fail("no candidate passed its last check for");
  }
}

std::unique_ptr<Plan> Conclusion::bind_whole(CandidateReport& its) {
  try {
    std::unique_ptr<Plan> plan = backend_.prepare(problem_, its.candidate);
    judge_on_whole(*plan, its);
    if (its.outcome != Outcome::rejected) return plan;
  } catch (const std::bad_alloc&) {
    its.outcome = Outcome::refused;
    its.reason = "ran out of memory on the whole problem";
    its.blame = ErrorKind::environment;
  } catch (const std::exception& error) {
    const auto* const known = dynamic_cast<const Error*>(&error);
    its.outcome = Outcome::rejected;
    its.reason = fmt::format("failed on the whole problem: {}", error.what());
    its.blame = known ? known->kind() : ErrorKind::internal;
  }
  return nullptr;
}

void Conclusion::judge_on_whole(Plan& plan, CandidateReport& its) {
  if (options_.cancelled && options_.cancelled()) {
    notes_.push_back("only the part was checked: the planning was cancelled");
    return;
  }
  if (!judge_whole_ || clock_.now() + whole_seconds_ > budget_end_) {
    notes_.push_back("only the part was checked: judging on the whole call does not fit the budget");
    return;
  }
  std::unique_ptr<Workbench> whole;
  try {
    whole = backend_.open_workbench(problem_, call_);
  } catch (const std::bad_alloc&) {
    notes_.push_back("only the part was checked: the whole call's reference does not fit in memory");
    return;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::environment) throw;
    notes_.push_back(fmt::format("only the part was checked: {}", error.what()));
    return;
  }
  ++runs_;
  const Verdict verdict = whole->check(plan);
  its.worst = std::max(its.worst, verdict.worst);
  const Contract contract = judging_contract(backend_, its.candidate, problem_, problem_.elements());
  if (!verdict.passes(contract)) {
    reject(its, "on the whole call", verdict, contract);
    return;
  }
  range_ = whole->input_range();
  notes_.push_back("checked on the whole call");
}

}  // namespace gnomon
