#include "plan/planner.hpp"

#include <algorithm>
#include <new>

#include "core/error.hpp"
#include "plan/calibration.hpp"
#include "plan/conclusion.hpp"

namespace gnomon {
namespace {

// A plain pass longer than this share of the budget leaves too few passes to tell some twenty candidates apart.
constexpr double kPlainPassesPerBudget = 40;

struct Trim {  // after the losers are gone
  Backend& backend;
  ~Trim() { backend.trim(); }
};

void check_forced_names(const Candidate& plain, const Constraints& constraints) {
  for (const Choice& choice : constraints.forced) {
    if (!plain.find(choice.name)) {
      throw_caller("no choice is named '{}' (forced to '{}'); there are, with the plain path's values: {}", choice.name,
                   choice.value, plain.to_string());
    }
  }
}

}  // namespace

PlanResult Planner::plan(const Problem& problem, const Call& call, const PlannerOptions& options) {
  if (options.effort == Effort::stored)
    throw_internal("the planner measures; effort 'stored' is answered by the plan store");
  if (problem.elements() == 0) throw_internal("there is nothing to plan for {}", to_string(problem));
  const Candidate plain = backend_.plain(problem);
  check_forced_names(plain, options.constraints);

  const double started = clock_.now();
  const Trim trim{backend_};
  const Problem affordable = part_within(backend_, problem, options.budget_seconds / kPlainPassesPerBudget);
  const Candidate estimate = backend_.estimate(problem, options.constraints);
  const Bench bench = open_bench(backend_, call, part_showing(backend_, problem, affordable, estimate));
  Conclusion conclusion(backend_, clock_, problem, call, bench, clock_.now() - started,
                        started + options.budget_seconds, options);
  Contest contest(backend_, clock_, *bench.workbench, problem, bench.problem, options, started,
                  conclusion.search_deadline());
  Search search(backend_, contest, problem, options);
  search.run();

  PlanResult result;
  result.plan = conclusion.conclude(contest, search);
  contest.summarize();
  const CandidateReport& winner = contest.report(search.incumbent());
  PlanRecord& record = result.record;
  record.problem = problem;
  record.constraints = options.constraints.to_string();
  record.winner = winner.candidate;
  record.effort = options.effort;
  record.seconds = winner.seconds;
  if (const CandidateReport* its = contest.met(plain)) record.plain_seconds = its->seconds;
  record.worst = winner.worst;
  record.verified_range = conclusion.range();
  if (conclusion.part()) record.calibrated_on = to_string(bench.problem);
  const bool cancelled = search.cut_short() && options.cancelled && options.cancelled();
  record.budget_exhausted = search.cut_short();
  record.budget_seconds = cancelled ? 0 : options.budget_seconds;
  record.timing_runs = contest.runs() + conclusion.runs();
  record.scratch_bytes = result.plan->scratch_bytes();
  if (record.seconds > 0) record.bound = backend_.bound(bench.problem, winner.candidate, record.seconds);
  record.notes = search.notes;
  if (cancelled) {
    record.notes.push_back(
        "cut short by the caller: what is untimed may be faster; the next engine that has time plans anew");
  }
  record.notes.insert(record.notes.end(), conclusion.notes().begin(), conclusion.notes().end());
  record.candidates = contest.reports;
  result.plan->set_verified_range(record.verified_range);
  record.planning_seconds = clock_.now() - started;
  return result;
}

std::unique_ptr<Plan> Planner::revive(const Problem& problem, const Call& call, PlanRecord& record,
                                      const Constraints& constraints, bool check, NotRevived& why) {
  const Candidate& candidate = record.winner;
  if (!(candidate.with(constraints.forced) == candidate)) {
    why.reason = fmt::format("{} is not what is forced: {}", candidate.to_string(), constraints.to_string());
    return nullptr;
  }
  if (const auto refusal = backend_.refuses(problem, constraints, candidate)) {
    why.reason = refusal->reason;
    return nullptr;
  }
  try {
    if (!check) {
      std::unique_ptr<Plan> plan = backend_.prepare(problem, candidate);
      plan->set_verified_range(record.verified_range);
      return plan;
    }
    // Judging costs about what it cost when this was planned: a choice made for a small batch and adopted for a huge
    // one is judged on a part of it.
    const Problem judged = record.calibrated_on.empty() ? record.problem : parse_problem(record.calibrated_on);
    const Bench bench =
        open_bench(backend_, call, part_within(backend_, problem, 2 * backend_.estimate_plain_seconds(judged)));
    std::unique_ptr<Plan> plan = backend_.prepare(bench.problem, candidate);
    const Verdict verdict = bench.workbench->check(*plan);
    const Contract contract = judging_contract(backend_, candidate, problem, bench.problem.elements());
    if (!verdict.passes(contract)) {
      why = {describe_failure(verdict, contract), /*broke_contract=*/true};
      return nullptr;
    }
    if (!(bench.problem == problem)) plan = backend_.prepare(problem, candidate);
    record.worst = verdict.worst;
    record.verified_range = bench.workbench->input_range();
    plan->set_verified_range(record.verified_range);
    return plan;
  } catch (const std::bad_alloc&) {
    why.reason = "ran out of memory";
  } catch (const std::exception& error) {
    why.reason = error.what();
  }
  return nullptr;
}

}  // namespace gnomon
