#include "engine/engine.hpp"

#include <algorithm>
#include <mutex>

#include "core/error.hpp"
#include "engine/engine_state.hpp"

namespace gnomon {
namespace {

std::filesystem::path plan_directory(const EngineOptions& options) {
  return options.plan_directory ? *options.plan_directory : default_plan_directory();
}

}  // namespace

std::uint64_t Generation::fingerprint() {
  if (!fingerprint_) fingerprint_ = weights_->fingerprint();
  return *fingerprint_;
}

EngineState::EngineState(Weights weights, EngineOptions engine_options, BackendFactory backend_factory,
                         Clock& engine_clock)
    : config(weights.config()),
      options(std::move(engine_options)),
      factory(std::move(backend_factory)),
      clock(engine_clock) {
  generation = make_generation(std::move(weights));
  store.emplace(plan_directory(options), generation->backend()->environment());
}

std::shared_ptr<Generation> EngineState::make_generation(Weights weights) const {
  auto shared = std::make_shared<const Weights>(std::move(weights));
  std::shared_ptr<Backend> backend = factory(options.device, shared, options.constraints);
  return std::make_shared<Generation>(std::move(shared), std::move(backend), options.max_plans);
}

std::shared_ptr<Generation> EngineState::current() const {
  const std::shared_lock lock(generation_mutex);
  return generation;
}

std::shared_ptr<BoundPlan> EngineState::find(const Problem& problem) const {
  const std::shared_lock lock(generation_mutex);
  return generation->plans.find(problem);
}

Engine::Engine(Weights weights, EngineOptions options)
    : Engine(std::move(weights), std::move(options), make_backend, steady_clock()) {}

Engine::Engine(Weights weights, EngineOptions options, BackendFactory factory, Clock& clock)
    : state_(std::make_unique<EngineState>(std::move(weights), std::move(options), std::move(factory), clock)) {}

Engine::~Engine() = default;

void Engine::forward(const Call& call) {
  const Problem problem = problem_of(state_->config, call, state_->options.contract, state_->options.device);
  state_->counters.forwards.fetch_add(1, std::memory_order_relaxed);
  if (problem.elements() == 0) return;
  auto bound = state_->find(problem);
  if (!bound) bound = state_->obtain(problem, call, Asked::by_forward);
  if (bound->provisional()) state_->plan_beside(*bound, call);
  try {
    bound->plan().run(call);
  } catch (const std::bad_alloc&) {
    throw_environment(
        "not enough memory to run {}: the plan needs {} bytes of scratch beside {} bytes of packed weights; "
        "free memory, or set memory_limit below what is free",
        to_string(problem), bound->plan().scratch_bytes(), bound->plan().packed_bytes());
  }
}

PlanRecord EngineState::describe(const BoundPlan& bound) const {
  PlanRecord record = bound.record();
  const auto failure = bound.provisional() ? background.failure(record.problem) : std::nullopt;
  if (failure) record.notes.push_back("planning in the background failed: " + *failure);
  return record;
}

PlanRecord Engine::plan(const Call& call) {
  const Problem problem = problem_of(state_->config, call, state_->options.contract, state_->options.device);
  if (problem.elements() == 0) {
    throw_caller("nothing to plan: the input is [{}, {}, {}], which holds no element", problem.batch, problem.seq,
                 problem.config.d_model);
  }
  auto bound = state_->find(problem);
  if (!bound || bound->provisional()) bound = state_->obtain(problem, call, Asked::by_plan);
  return bound->record();
}

bool Engine::cancel() noexcept {
  auto under_way = Foreground::planning;
  return state_->foreground.compare_exchange_strong(under_way, Foreground::cancelled);
}

std::optional<PlanRecord> Engine::explain(const Problem& problem) {
  if (const auto bound = state_->find(problem)) return state_->describe(*bound);
  return state_->store->find(problem, state_->options.constraints);
}

std::vector<PlanRecord> Engine::explain_all() {
  std::vector<PlanRecord> records;
  for (const auto& bound : state_->current()->plans.all()) records.push_back(state_->describe(*bound));
  std::sort(records.begin(), records.end(), [](const PlanRecord& a, const PlanRecord& b) {
    return std::pair(a.problem.seq, a.problem.batch) < std::pair(b.problem.seq, b.problem.batch);
  });
  const std::size_t in_memory = records.size();
  const std::string constraints = state_->options.constraints.to_string();
  for (auto& record : state_->store->list()) {
    const auto end = records.begin() + static_cast<std::ptrdiff_t>(in_memory);
    const bool known =
        std::any_of(records.begin(), end, [&](const auto& other) { return other.problem == record.problem; });
    if (!known && record.problem.config == state_->config && record.constraints == constraints)
      records.push_back(std::move(record));
  }
  return records;
}

std::shared_ptr<void> Engine::idle_device(const Problem& problem) {
  const auto bound = state_->find(problem);
  return bound ? state_->current()->backend()->idle_device(state_->describe(*bound).winner) : nullptr;
}

std::size_t Engine::forget(const std::optional<Problem>& problem) {
  const std::lock_guard planning(state_->planning_mutex);  // or a planning under way would bring it back
  state_->background.forget(problem);
  const auto generation = state_->current();
  if (problem) {
    generation->plans.forget(*problem);
    generation->judged_loans.erase(to_string(*problem));
    generation->broken_plans.erase(to_string(*problem));
  } else {
    generation->plans.clear();
    generation->judged_loans.clear();
    generation->broken_plans.clear();
  }
  generation->backend()->trim();
  return state_->store->forget(problem);
}

void Engine::refresh(Weights weights) {
  if (weights.config() != state_->config) {
    throw_caller("refresh: expected weights of {} (the engine's), got {}", to_string(state_->config),
                 to_string(weights.config()));
  }
  auto next = state_->make_generation(std::move(weights));
  {
    const std::unique_lock lock(state_->generation_mutex);
    state_->generation.swap(next);  // `next`, now the old one, dies after the lock, or with its last running call
  }
  state_->background.keep_only(state_->current());
}

EngineStats Engine::stats() const {
  const auto& counters = state_->counters;
  EngineStats stats;
  stats.forwards = counters.forwards;
  stats.problems_planned = counters.problems_planned;
  stats.timing_runs = counters.timing_runs;
  stats.check_runs = counters.check_runs;
  stats.store_hits = counters.store_hits;
  stats.plans_adopted = counters.plans_adopted;
  stats.plans_evicted = counters.plans_evicted;
  stats.range_fallbacks = counters.past_fallbacks;
  stats.background_planned = counters.background_planned;
  stats.background_pending = state_->background.pending();
  stats.background_failed = state_->background.failed();
  const auto generation = state_->current();
  stats.packed_bytes = generation->backend()->packed_bytes();
  for (const auto& bound : generation->plans.all()) {
    stats.range_fallbacks += bound->plan().range_fallbacks();
    stats.scratch_bytes = std::max(stats.scratch_bytes, bound->plan().scratch_bytes());
  }
  return stats;
}

const StackConfig& Engine::config() const { return state_->config; }
const EngineOptions& Engine::options() const { return state_->options; }
PlanStore& Engine::store() { return *state_->store; }

}  // namespace gnomon
