// The engine: weights on a device, a plan for each problem met, one entry point. Safe to share between threads.
//
// How a call finds its plan, first match wins:
//   1. in memory (at most max_plans, the least recently used one is given back);
//   2. in the plan store, made with at least the effort asked for, and not cut short in half of the time that there is
//      now, or by the caller (PlanRecord::satisfies). An fp32 winner is used as it is; one with approximations is
//      judged once per weights; one made under another driver, or imported by force, is judged too. One that breaks the
//      contract is remembered in memory and not judged with these weights again;
//   3. effort `stored`: a caller error that says what to do;
//   4. the nearest stored plan of another B or S lends its choices, judged on this call, when B and S are both within a
//      factor of two of it, or when total_budget_seconds are used up (all but a tenth of a planning). Such a plan is
//      provisional: it stays in memory only;
//   5. the planner, within budget_seconds and what is left of total_budget_seconds; when nothing is left, its estimate
//      (provisional too, though stored as an estimate).
// One planning runs at a time; who needs an unplanned problem meanwhile waits, who has a plan goes on.
// With `background`, 4 lends at any distance and 5 is the estimate, judged: no call waits for a planning. A thread of
// the engine, started by the first provisional plan, plans the problem within budget_seconds (not counted towards
// total_budget_seconds) on a copy of the call's input and mask, and replaces the provisional plan. At most 16 problems
// wait; one more is offered again by a later call. refresh() and forget() drop what they outdate, the destructor
// cancels. A planning that fails is logged, counted and noted in explain(); the provisional plan stays.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/weights.hpp"
#include "plan/backend.hpp"
#include "plan/clock.hpp"
#include "plan/plan_store.hpp"
#include "plan/planner.hpp"

namespace gnomon {

struct EngineOptions {
  std::string device = "cpu";
  Effort effort = Effort::measure;
  double budget_seconds = 10;        // planning time for one problem
  double total_budget_seconds = 60;  // over the engine's life; then the nearest plan's choices are adopted
  std::optional<std::filesystem::path> plan_directory;  // default: default_plan_directory(); empty path: memory only
  Constraints constraints;
  Contract contract;
  std::size_t max_plans = 64;          // least recently used ones are given back
  std::string range_check = "device";  // device | off: does a reduced plan look for inputs beyond its verified range
  bool background = false;             // plan beside the calls
  std::function<void(const Progress&)> progress;

  // Sets one option from text: device, effort, budget, total_budget, plan_dir, fp32_only, exact_activation,
  // memory_limit ("512MiB"), threads, force ("fused_qkv=off,slices=4"), timing, background, abs, rel, headroom,
  // max_plans, range_check. Caller error names the option and what it takes.
  void set(std::string_view name, std::string_view value);
};

struct EngineStats {
  std::int64_t forwards = 0;
  std::int64_t problems_planned = 0;
  std::int64_t timing_runs = 0;  // runs made for timing or checking; 0 with a warm store of fp32 plans
  std::int64_t check_runs = 0;
  std::int64_t store_hits = 0;
  std::int64_t plans_adopted = 0;  // unseen B or S answered with the nearest plan's choices
  std::int64_t plans_evicted = 0;
  std::int64_t background_planned = 0;  // provisional plans replaced by the background thread
  std::int64_t background_pending = 0;  // problems that wait for it, or that it is planning
  std::int64_t background_failed = 0;
  std::int64_t range_fallbacks = 0;
  std::int64_t scratch_bytes = 0;  // the largest of the live plans
  std::int64_t packed_bytes = 0;   // of the weights' copies that the plans share
};

// Makes the backend of a device; a test passes its own.
using BackendFactory = std::function<std::unique_ptr<Backend>(
    std::string_view device, std::shared_ptr<const Weights> weights, const Constraints& constraints)>;

struct EngineState;  // engine_state.hpp

class Engine {
 public:
  Engine(Weights weights, EngineOptions options);
  Engine(Weights weights, EngineOptions options, BackendFactory factory, Clock& clock);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // output = stack(input). See Call for shapes and masks. Plans on the first call with a problem.
  // An empty batch or sequence returns at once: nothing is launched, planned or stored.
  void forward(const Call& call);

  // Plans (or revives) for this call's problem without writing the output. It was asked for, so it neither borrows
  // another problem's choices nor stops at total_budget_seconds (it counts towards them), and replaces a provisional
  // plan.
  PlanRecord plan(const Call& call);

  // Cuts short the planning that a call is waiting for: its best so far is used and stored, and a note says so; the
  // next engine plans anew. False when there is none, or it was told before. Safe in a signal handler.
  bool cancel() noexcept;

  // What is known about a problem (from memory or the store); empty when it was never planned.
  std::optional<PlanRecord> explain(const Problem& problem);
  std::vector<PlanRecord> explain_all();

  // Drops a problem's plan (all plans when empty) from memory and from the store; returns how many the store held.
  std::size_t forget(const std::optional<Problem>& problem);

  // New weights of the same structure; running calls end on the old ones, and a background planning ends before this
  // returns. Packed copies are made anew, plans are
  // re-checked where they are not exact.
  void refresh(Weights weights);

  // For benches, and the whole process's: Backend::idle_device for the problem's plan in memory; null where there is none.
  std::shared_ptr<void> idle_device(const Problem& problem);

  EngineStats stats() const;
  const StackConfig& config() const;
  const EngineOptions& options() const;
  PlanStore& store();

 private:
  std::unique_ptr<EngineState> state_;
};

// The CPU is built in; "cuda:N" loads the plugin and fails with one clear line when it cannot.
std::unique_ptr<Backend> make_backend(std::string_view device, std::shared_ptr<const Weights> weights,
                                      const Constraints& constraints);

}  // namespace gnomon
