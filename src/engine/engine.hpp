// The engine: weights on a device, a plan for each problem met, one entry point. Safe to share between threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/weights.hpp"
#include "plan/backend.hpp"
#include "plan/clock.hpp"
#include "plan/planner.hpp"
#include "plan/plan_store.hpp"

namespace gnomon {

struct EngineOptions {
  std::string device = "cpu";
  Effort effort = Effort::measure;
  double budget_seconds = 10;          // planning time for one problem
  double total_budget_seconds = 60;    // planning time over the engine's life; then the nearest plan's choices are adopted
  std::optional<std::filesystem::path> plan_directory;  // default: default_plan_directory(); empty path: memory only
  Constraints constraints;
  Contract contract;
  std::size_t max_plans = 64;          // least recently used ones are given back
  std::string range_check = "device";  // device | off: what a reduced-precision plan does with inputs beyond its verified range
  std::function<void(const Progress&)> progress;

  // Sets one option from text: device, effort, budget, total_budget, plan_dir, fp32_only, exact_activation, memory_limit
  // ("512MiB"), threads, force ("fused_qkv=off,slices=4"), abs, rel, headroom, max_plans, range_check.
  // Caller error names the option and what it takes.
  void set(std::string_view name, std::string_view value);
};

struct EngineStats {
  std::int64_t forwards = 0;
  std::int64_t problems_planned = 0;
  std::int64_t timing_runs = 0;        // runs made for timing or checking; 0 with a warm store of fp32 plans
  std::int64_t check_runs = 0;
  std::int64_t store_hits = 0;
  std::int64_t plans_adopted = 0;      // unseen B or S answered with the nearest plan's choices
  std::int64_t plans_evicted = 0;
  std::int64_t range_fallbacks = 0;
  std::int64_t scratch_bytes = 0;      // the largest of the live plans
  std::int64_t packed_bytes = 0;
};

class Engine {
 public:
  Engine(Weights weights, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // output = stack(input). See Call for shapes and masks. Plans on the first call with a problem.
  void forward(const Call& call);

  // Plans (or revives) for this call's problem without writing the output.
  PlanRecord plan(const Call& call);

  // What is known about a problem (from memory or the store); empty when it was never planned.
  std::optional<PlanRecord> explain(const Problem& problem);
  std::vector<PlanRecord> explain_all();

  // New weights of the same structure: packed copies are made anew, plans are re-checked where they are not exact.
  void refresh(Weights weights);

  EngineStats stats() const;
  const StackConfig& config() const;
  const EngineOptions& options() const;
  PlanStore& store();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The CPU is built in; "cuda:N" loads the plugin and fails with one clear line when it cannot.
std::unique_ptr<Backend> make_backend(std::string_view device, std::shared_ptr<const Weights> weights, const Constraints& constraints);

}  // namespace gnomon
