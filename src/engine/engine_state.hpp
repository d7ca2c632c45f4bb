// What is behind an Engine: one generation per set of weights, and the way from a problem to a plan.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

#include "engine/background.hpp"
#include "engine/engine.hpp"
#include "engine/plan_cache.hpp"

namespace gnomon {

// Everything bound to one set of weights. refresh() starts a new one; calls and plannings under way end on the old one.
class Generation {
 public:
  Generation(std::shared_ptr<const Weights> weights, std::shared_ptr<Backend> backend, std::size_t max_plans)
      : plans(max_plans), weights_(std::move(weights)), backend_(std::move(backend)) {}

  // Made when first needed: it reads every weight, and a warm start on exact plans never asks.
  std::uint64_t fingerprint();
  const std::shared_ptr<Backend>& backend() const { return backend_; }

  PlanCache plans;
  // Borrowed choices that were judged, by problem: a plan that was given back needs no second check. Under
  // planning_mutex.
  std::unordered_map<std::string, PlanRecord> judged_loans;
  // Stored plans that broke the contract with these weights, by problem: judging again would say the same, each time at
  // the cost of the reference. Under planning_mutex.
  struct Broken {
    Candidate winner;
    NotRevived why;
  };
  std::unordered_map<std::string, Broken> broken_plans;

 private:
  const std::shared_ptr<const Weights> weights_;
  const std::shared_ptr<Backend> backend_;
  std::optional<std::uint64_t> fingerprint_;  // under planning_mutex
};

enum class Asked { by_forward, by_plan, in_background };

// The planning that a call is waiting for. A signal handler may change it.
enum class Foreground : int { idle, planning, cancelled };
static_assert(std::atomic<Foreground>::is_always_lock_free);

struct EngineState {
  EngineState(Weights weights, EngineOptions options, BackendFactory factory, Clock& clock);

  std::shared_ptr<Generation> current() const;
  std::shared_ptr<BoundPlan> find(const Problem& problem) const;  // in memory
  // The rule at the head of engine.hpp.
  std::shared_ptr<BoundPlan> obtain(const Problem& problem, const Call& call, Asked asked);
  std::shared_ptr<Generation> make_generation(Weights weights) const;
  // Whether calls are answered with what is at hand while the background thread plans.
  bool plans_beside() const {
    const bool measured = options.effort == Effort::measure || options.effort == Effort::exhaustive;
    return options.background && measured && !background.stranded();
  }
  void plan_beside(BoundPlan& provisional, const Call& call);
  void plan_in_background(Background::Job& job);
  PlanRecord describe(const BoundPlan& bound) const;

  const StackConfig config;
  const EngineOptions options;
  const BackendFactory factory;
  Clock& clock;

  struct Counters {
    std::atomic<std::int64_t> forwards{0}, problems_planned{0}, timing_runs{0}, check_runs{0}, store_hits{0},
        plans_adopted{0}, plans_evicted{0}, past_fallbacks{0}, background_planned{0};
  };
  mutable Counters counters;

  mutable std::shared_mutex generation_mutex;
  std::shared_ptr<Generation> generation;  // under generation_mutex
  std::optional<PlanStore> store;          // set by the constructor, once there is a backend to ask for its environment

  std::atomic<Foreground> foreground{Foreground::idle};
  std::mutex planning_mutex;
  double planning_seconds = 0;  // under planning_mutex

  // The last member: its thread works on the others.
  Background background{[this](Background::Job& job) { plan_in_background(job); }};
};

}  // namespace gnomon
