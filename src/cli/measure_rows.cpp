#include "cli/measure_rows.hpp"

#include <algorithm>
#include <functional>

#include "cli/engine_plan.hpp"
#include "cli/interrupt.hpp"
#include "cli/workload.hpp"
#include "core/error.hpp"
#include "cpu/bare_products.hpp"
#include "cpu/cpu_info.hpp"
#include "plan/measure.hpp"

namespace gnomon::cli {
namespace {

constexpr std::uint64_t seed = 1;
constexpr std::size_t fewest_pairs = 3, most_pairs = 31;
constexpr double pair_coverage = 0.95;
constexpr double overhead_seconds = 0.2;

// A plan's pass less its kernels: call, dispatch to the workers, barriers.
class WithoutKernels : public Plan {
 public:
  explicit WithoutKernels(Plan& plan) : plan_(plan) {}
  void run(const Call& call) override { plan_.run_without_kernels(call); }
  std::int64_t scratch_bytes() const override { return plan_.scratch_bytes(); }

 private:
  Plan& plan_;
};

struct Pairs {
  std::vector<double> first, second;
};

// A B, B A, A B, ...: a drift of the machine falls on both alike.
Pairs interleave(Meter& meter, Plan& first, Plan& second, std::size_t most, double seconds) {
  double pass = 0;
  const int first_runs = meter.trustworthy_runs(first, pass);
  const int second_runs = meter.trustworthy_runs(second, pass);
  const double deadline = steady_clock().now() + seconds;
  Pairs pairs;
  while (pairs.first.size() < most && (pairs.first.size() < fewest_pairs || steady_clock().now() < deadline)) {
    const bool swapped = pairs.first.size() % 2 == 1;
    if (swapped) pairs.second.push_back(meter.sample(second, second_runs));
    pairs.first.push_back(meter.sample(first, first_runs));
    if (!swapped) pairs.second.push_back(meter.sample(second, second_runs));
  }
  return pairs;
}

std::vector<double> samples_alone(Meter& meter, Plan& plan, double seconds) {
  double pass = 0;
  const int runs = meter.trustworthy_runs(plan, pass);
  const double deadline = steady_clock().now() + seconds;
  std::vector<double> samples;
  while (samples.size() < most_pairs && (samples.size() < fewest_pairs || steady_clock().now() < deadline)) {
    samples.push_back(meter.sample(plan, runs));
  }
  return samples;
}

template <typename Operation>
Interval paired(const Pairs& pairs, Operation operation) {
  std::vector<double> values(pairs.first.size());
  std::transform(pairs.first.begin(), pairs.first.end(), pairs.second.begin(), values.begin(), operation);
  return median_interval(values, pair_coverage);
}

// The reference path, or null and why it cannot run here.
std::unique_ptr<Plan> plain_path(Backend& backend, const BenchRow& row, RowResult& result) {
  const Candidate plain = backend.plain(row.problem);
  if (const auto refusal = backend.refuses(row.problem, Constraints{}, plain)) {
    result.no_plain = refusal->reason;
    return nullptr;
  }
  try {
    return backend.prepare(row.problem, plain);
  } catch (const std::bad_alloc&) {
    result.no_plain = "out of memory";
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::environment) throw;
    result.no_plain = error.what();
  }
  return nullptr;
}

void plan_row(Engine& engine, Workload& workload, RowResult& result) {
  const double start = steady_clock().now();
  const PlanRecord record = engine.plan(workload.call());
  result.from_store = engine.stats().problems_planned == 0;
  result.planning_seconds = steady_clock().now() - start;
  result.winner = record.winner;
  result.bound = record.bound;
}

void time_row(Meter& meter, Plan& forward, Plan* plain, double seconds, RowResult& result) {
  if (plain == nullptr) {
    const std::vector<double> alone = samples_alone(meter, forward, seconds);
    result.plan = quartiles(alone);
    result.samples = static_cast<int>(alone.size());
    return;
  }
  const Pairs pairs = interleave(meter, forward, *plain, most_pairs, seconds);
  result.plan = quartiles(pairs.first);
  result.plain = quartiles(pairs.second);
  result.speedup =
      paired(pairs, [](double plan_seconds, double plain_seconds) { return plain_seconds / plan_seconds; });
  result.samples = static_cast<int>(pairs.first.size());
}

// Notes how long each call holds its caller.
class Stopwatch : public Plan {
 public:
  explicit Stopwatch(Plan& plan) : plan_(plan) {}
  void run(const Call& call) override {
    const double start = steady_clock().now();
    plan_.run(call);
    seconds_.push_back(steady_clock().now() - start);
  }
  std::int64_t scratch_bytes() const override { return plan_.scratch_bytes(); }
  // Of some calls in a row, so few that none waits for room in the device's queue.
  Quartiles of_calls(Meter& meter) {
    constexpr int calls = 10, times = 10;
    for (int i = 0; i <= times; ++i) {
      if (i == 1) seconds_.clear();  // the first ones only warm up
      meter.sample(*this, calls);
    }
    return quartiles(seconds_);
  }

 private:
  Plan& plan_;
  std::vector<double> seconds_;
};

void time_overhead(Meter& meter, Plan& bound, const Call& call, RowResult& result) {
  if (!bound.run_without_kernels(call)) return;
  WithoutKernels dispatch(bound);
  result.overhead = quartiles(samples_alone(meter, dispatch, overhead_seconds));
}

void time_host(Meter& meter, Backend& backend, Plan& forward, RowResult& result) {
  const Quartiles call = Stopwatch(forward).of_calls(meter);
  const auto idle = backend.idle_device(result.winner);
  if (!idle) return;
  result.host_call = call;
  result.overhead = Stopwatch(forward).of_calls(meter);
}

// How far apart the slow and the fast quarters of one yardstick lie, before and after together, over its best median.
double spread(const Quartiles& before, const Quartiles& after) {
  const double best = std::max(before.median, after.median);
  return best > 0 ? (std::max(before.high, after.high) - std::min(before.low, after.low)) / best : 0;
}

}  // namespace

double least_bytes(const BenchRow& row) {
  constexpr double activations = 4;        // input, output, reference answer, guarded scratch output
  constexpr double copies_of_weights = 2;  // as loaded, which the reference path uses; packed by the engine
  const StackConfig& config = row.problem.config;
  const double d = static_cast<double>(config.d_model), f = static_cast<double>(config.d_ff);
  const double weights = static_cast<double>(config.layers) * (4 * d * d + 2 * d * f) * sizeof(float);
  return activations * activation_bytes(row.problem) + copies_of_weights * weights;
}

double estimated_plain_seconds(const BenchRow& row, const Constraints& constraints) {
  return backend_without_weights(row.problem.device, constraints)->estimate_plain_seconds(row.problem);
}

RowResult measure_row(const BenchRow& row, EngineOptions options, const RowBudget& budget, ProgressLine& progress) {
  RowResult result;
  const auto weights = std::make_shared<const Weights>(weights_of(row.weights, row.problem.config, seed));
  options.budget_seconds = budget.planning;
  Engine engine(*weights, options);
  const InterruptiblePlanning interruptible(engine);
  Workload workload(row.problem, seed);
  plan_row(engine, workload, result);

  progress.show(fmt::format("{}: checking", row.id));
  const auto backend = make_backend(options.device, weights, options.constraints);
  result.approximations = backend->approximations(result.winner);
  const auto bench = backend->open_workbench(row.problem, workload.call());
  EnginePlan forward(engine);
  const auto bound = backend->prepare(row.problem, result.winner);
  bound->set_verified_range(bench->input_range());
  result.verdict = bench->check(forward);
  result.scratch_bytes = bound->scratch_bytes();
  result.packed_bytes = bound->packed_bytes();

  progress.show(fmt::format("{}: timing", row.id));
  Meter meter(*bench, steady_clock(), row.problem.inplace, options.constraints.timing);
  // Before and after the pairs, and the higher counts: a yardstick must not shrink because a neighbour was busy.
  const int threads = options.constraints.threads.value_or(cpu::cpu_info().cores);
  const bool on_cpu = options.device == "cpu";  // a device's yardstick is the peak that `bound` names
  const auto bare = [&] {
    return on_cpu ? cpu::measure_bare_products(row.problem, threads, budget.bare / 2) : Quartiles{};
  };
  const Quartiles bare_before = bare();
  const auto plain = plain_path(*backend, row, result);
  time_row(meter, forward, plain.get(), budget.pairs, result);
  if (on_cpu) {
    time_overhead(meter, *bound, workload.call(), result);
  } else {
    time_host(meter, *backend, forward, result);
  }
  const Quartiles bare_after = bare();
  result.bare_flops = std::max(bare_before.median, bare_after.median);
  result.bare_spread = spread(bare_before, bare_after);

  const Verdict after = bench->check(forward);
  if (after.worst > result.verdict.worst || !after.fault.empty()) result.verdict = after;
  result.failed = !result.verdict.fault.empty() || result.verdict.out_of_contract > 0;
  return result;
}

}  // namespace gnomon::cli
