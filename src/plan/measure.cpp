#include "plan/measure.hpp"

namespace gnomon {
namespace {

constexpr int kMostRuns = 1 << 16;  // a clock that stands still must not hang the planner

}  // namespace

Verdict Meter::check(Plan& plan) {
  ++runs_;
  return bench_.check(plan);
}

int Meter::trustworthy_runs(Plan& plan, double& seconds) {
  for (int runs = 1;; runs *= 2) {
    seconds = sample(plan, runs);
    if (runs >= kMostRuns || seconds * runs >= 10 * kTrustworthySample) return runs;
    // A short one is taken twice: a page fault in the first would pass a pass of 20 us off as one of 200.
    if (seconds * runs >= kTrustworthySample && (seconds = sample(plan, runs)) * runs >= kTrustworthySample)
      return runs;
  }
}

double Meter::sample(Plan& plan, int runs) {
  const double entered = clock_.now();
  double elapsed = 0;
  for (int left = runs; left > 0;) {
    const int batch = one_by_one_ ? 1 : left;
    bench_.before_timed_run();
    if (cold_) bench_.evict_caches();  // after the restoring, which fills them
    const double start = clock_.now();
    runs_ += batch;
    bench_.run_repeatedly(plan, batch);
    elapsed += clock_.now() - start;
    left -= batch;
  }
  untimed_ = (clock_.now() - entered - elapsed) / runs;
  return elapsed / runs;
}

}  // namespace gnomon
