// From a problem without a plan in memory to one with: the store, a loan, or the planner.
#include <algorithm>
#include <new>

#include "core/error.hpp"
#include "core/log.hpp"
#include "engine/engine_state.hpp"

namespace gnomon {
namespace {

constexpr double kNear = 2;                    // borrow without a thought within this factor in B and in S
constexpr double kCrumbs = 0.1;                // of a planning's budget
constexpr std::size_t kJudgementsKept = 4096;  // records of a few hundred bytes

bool within_factor(std::int64_t a, std::int64_t b, double factor) {
  const double ratio = static_cast<double>(a) / static_cast<double>(b);
  return ratio <= factor && ratio >= 1 / factor;
}

// One problem's way to its plan, walked under the planning mutex.
class Turn {
 public:
  Turn(EngineState& state, Generation& generation, const Problem& problem, const Call& call, Asked asked)
      : state_(state),
        generation_(generation),
        problem_(problem),
        call_(call),
        asked_(asked),
        planner_(*generation.backend(), state.clock) {}

  std::shared_ptr<BoundPlan> take() {
    if (auto bound = from_store()) return bound;
    if (wanted() == Effort::stored) refuse_unstored();
    if (asked_ == Asked::by_forward) {
      if (auto bound = borrow()) return bound;
    }
    return plan();
  }

  // The planner's work, which needs no planning mutex, and what it leaves behind, which does.
  PlanResult search(const PlannerOptions& options) { return planner_.plan(problem_, call_, options); }
  std::shared_ptr<BoundPlan> keep(PlanResult result, bool provisional);

 private:
  const Constraints& constraints() const { return state_.options.constraints; }
  Effort wanted() const { return state_.options.effort; }
  double budget_left() const { return state_.options.total_budget_seconds - state_.planning_seconds; }
  // A planning in the last crumbs of the budget would time next to nothing, and be stored as if it had.
  bool spent() const {
    const double usual = std::min(state_.options.budget_seconds, state_.options.total_budget_seconds);
    return budget_left() <= 0 || budget_left() < kCrumbs * usual;
  }
  // What a planning for this call would get.
  double budget() const {
    const double whole = state_.options.budget_seconds;
    return asked_ == Asked::by_forward ? std::min(whole, std::max(0.0, budget_left())) : whole;
  }
  bool enough(const PlanRecord& record) const {
    return wanted() == Effort::stored || record.satisfies(wanted(), budget()) ||
           (spent() && asked_ == Asked::by_forward);
  }

  std::shared_ptr<BoundPlan> from_store();
  std::shared_ptr<BoundPlan> borrow();
  std::shared_ptr<BoundPlan> plan();
  std::unique_ptr<Plan> revive(PlanRecord& record, bool check);
  std::shared_ptr<BoundPlan> bind(std::unique_ptr<Plan> plan, PlanRecord record, bool provisional);
  bool must_be_judged(const PlanRecord& record);
  bool known_broken(const PlanRecord& record);
  template <typename Judgement>
  void remember(std::unordered_map<std::string, Judgement>& judgements, Judgement judgement) const {
    if (judgements.size() >= kJudgementsKept) judgements.clear();
    judgements.insert_or_assign(to_string(problem_), std::move(judgement));
  }
  [[noreturn]] void refuse_unstored() const;

  EngineState& state_;
  Generation& generation_;
  const Problem& problem_;
  const Call& call_;
  const Asked asked_;
  Planner planner_;
  NotRevived why_;  // a stored plan did not hold
};

bool Turn::must_be_judged(const PlanRecord& record) {
  // Another driver, or imported by force from another environment.
  if (record.made_under != state_.store->environment().notes) return true;
  if (generation_.backend()->approximations(record.winner).empty()) return false;
  return record.weights_fingerprint != generation_.fingerprint();
}

bool Turn::known_broken(const PlanRecord& record) {
  const auto found = generation_.broken_plans.find(to_string(problem_));
  if (found == generation_.broken_plans.end() || found->second.winner != record.winner) return false;
  why_ = found->second.why;
  return true;
}

std::unique_ptr<Plan> Turn::revive(PlanRecord& record, bool check) {
  if (check) {
    ++state_.counters.check_runs;
    ++state_.counters.timing_runs;
  }
  why_ = {};
  auto plan = planner_.revive(problem_, call_, record, constraints(), check, why_);
  if (plan && check) record.weights_fingerprint = generation_.fingerprint();
  return plan;
}

std::shared_ptr<BoundPlan> Turn::bind(std::unique_ptr<Plan> plan, PlanRecord record, bool provisional) {
  if (state_.options.range_check == "off") plan->set_verified_range(kAnyInput);
  record.scratch_bytes = plan->scratch_bytes();
  auto bound = std::make_shared<BoundPlan>(generation_.backend(), std::move(plan), std::move(record), provisional,
                                           state_.counters.past_fallbacks);
  state_.counters.plans_evicted += generation_.plans.put(bound);
  return bound;
}

std::shared_ptr<BoundPlan> Turn::from_store() {
  auto record = state_.store->find(problem_, constraints());
  if (!record || !enough(*record)) return nullptr;
  const bool check = must_be_judged(*record);
  if (check && known_broken(*record)) return nullptr;
  auto plan = revive(*record, check);
  if (!plan) {
    if (why_.broke_contract) remember(generation_.broken_plans, {record->winner, why_});
    log::write(log::Level::warn,
               fmt::format("the stored plan of {} does not hold here: {}", to_string(problem_), why_.reason));
    return nullptr;
  }
  ++state_.counters.store_hits;
  if (check) state_.store->put(*record);
  return bind(std::move(plan), std::move(*record), /*provisional=*/false);
}

std::shared_ptr<BoundPlan> Turn::borrow() {
  const std::string key = to_string(problem_);
  if (const auto judged = generation_.judged_loans.find(key); judged != generation_.judged_loans.end()) {
    PlanRecord record = judged->second;
    if (auto plan = revive(record, /*check=*/false))
      return bind(std::move(plan), std::move(record), /*provisional=*/true);
  }
  const auto lender = state_.store->nearest(problem_, constraints());
  if (!lender) return nullptr;
  const bool near = within_factor(problem_.batch, lender->problem.batch, kNear) &&
                    within_factor(problem_.seq, lender->problem.seq, kNear) && enough(*lender);
  if (!near && !spent() && !state_.plans_beside()) return nullptr;

  PlanRecord record;
  record.problem = problem_;
  record.constraints = lender->constraints;
  record.winner = lender->winner;
  record.effort = lender->effort;
  record.notes = {"choices borrowed from " + to_string(lender->problem)};
  // What was timed or judged at most: the check on this call takes about that long, on a part of it if need be.
  record.calibrated_on = lender->calibrated_on.empty() ? to_string(lender->problem) : lender->calibrated_on;
  auto plan = revive(record, /*check=*/true);
  if (!plan) {
    log::write(log::Level::info,
               fmt::format("{} cannot use the choices of {}: {}", key, record.calibrated_on, why_.reason));
    return nullptr;
  }
  ++state_.counters.plans_adopted;
  remember(generation_.judged_loans, record);
  return bind(std::move(plan), std::move(record), /*provisional=*/true);
}

std::shared_ptr<BoundPlan> Turn::plan() {
  const bool guess = asked_ == Asked::by_forward && (spent() || state_.plans_beside());
  PlannerOptions options;
  options.effort = guess ? Effort::estimate : wanted();
  options.budget_seconds = budget();
  options.constraints = constraints();
  options.progress = state_.options.progress;
  options.cancelled = [this] { return state_.foreground == Foreground::cancelled; };

  // A planning that fails has used its time all the same.
  struct UnderWay {
    explicit UnderWay(EngineState& its) : state(its) { state.foreground = Foreground::planning; }
    ~UnderWay() {
      state.foreground = Foreground::idle;
      state.planning_seconds += state.clock.now() - start;
    }
    EngineState& state;
    double start = state.clock.now();
  } under_way(state_);
  return keep(search(options), /*provisional=*/guess);
}

std::shared_ptr<BoundPlan> Turn::keep(PlanResult result, bool provisional) {
  state_.counters.timing_runs += result.record.timing_runs;
  for (const auto& candidate : result.record.candidates) state_.counters.check_runs += candidate.worst >= 0;
  // An estimate that the background is about to replace is no planning, and not worth a file.
  if (!provisional || !state_.plans_beside()) {
    ++state_.counters.problems_planned;
    result.record.weights_fingerprint = generation_.fingerprint();
    state_.store->put(result.record);
  }
  return bind(std::move(result.plan), std::move(result.record), provisional);
}

void Turn::refuse_unstored() const {
  const std::string file = state_.store->file().empty() ? "memory (no plan directory)" : state_.store->file().string();
  const std::string demands = constraints().to_string();
  throw_caller(
      "effort=stored, and {} holds no plan for {}{}{}: plan it first (effort=measure) or import plans made in this "
      "environment",
      file, to_string(problem_), demands.empty() ? "" : " under " + demands,
      why_.reason.empty() ? "" : fmt::format(" that holds ({})", why_.reason));
}

}  // namespace

std::shared_ptr<BoundPlan> EngineState::obtain(const Problem& problem, const Call& call, Asked asked) {
  const std::lock_guard planning(planning_mutex);
  const auto generation_now = current();
  // Another thread may have planned it while this one waited.
  if (auto bound = generation_now->plans.find(problem); bound && !(asked == Asked::by_plan && bound->provisional()))
    return bound;
  if (asked == Asked::by_plan) background.forget(problem);  // it is planned here
  generation_now->backend()->require_time_to_plan(call);
  try {
    auto bound = Turn(*this, *generation_now, problem, call, asked).take();
    generation_now->backend()->trim();  // what plans that were given back, and a judgement that failed, had needed
    return bound;
  } catch (const std::bad_alloc&) {
    throw_environment(
        "not enough memory to plan {} (its input and output are {} bytes each); free memory, or set memory_limit",
        to_string(problem), problem.elements() * static_cast<std::int64_t>(size_of(problem.dtype)));
  }
}

void EngineState::plan_beside(BoundPlan& provisional, const Call& call) {
  if (!plans_beside() || !provisional.claim_planning()) return;
  const auto generation_now = current();
  const Problem& problem = provisional.record().problem;
  const auto keep = [&] { return generation_now->backend()->keep(problem, call); };
  if (!background.offer(generation_now, problem, keep)) provisional.unclaim_planning();
}

void EngineState::plan_in_background(Background::Job& job) {
  if (job.generation != current()) return;
  PlannerOptions asked{.effort = options.effort,
                       .budget_seconds = options.budget_seconds,
                       .constraints = options.constraints,
                       .cancelled = [&job] { return job.cancelled.load(); }};
  Turn turn(*this, *job.generation, job.problem, job.call.call, Asked::in_background);
  PlanResult result = turn.search(asked);  // calls that find no plan in memory go on meanwhile
  const std::lock_guard planning(planning_mutex);
  if (job.cancelled) return;
  turn.keep(std::move(result), /*provisional=*/false);
  job.generation->backend()->trim();
  ++counters.background_planned;
}

}  // namespace gnomon
