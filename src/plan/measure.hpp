// Runs plans on a bench under a clock, and counts every run.
#pragma once

#include <cstdint>

#include "plan/backend.hpp"
#include "plan/clock.hpp"

namespace gnomon {

// Shorter samples are mostly clock, launch and interrupts.
inline constexpr double kTrustworthySample = 200e-6;

class Meter {
 public:
  // `restore`: a run spoils its input (output is the input), so every run needs it restored, outside the timing.
  Meter(Workbench& bench, Clock& clock, bool restore, Timing timing = Timing::warm)
      : bench_(bench), clock_(clock), one_by_one_(restore || timing == Timing::cold), cold_(timing == Timing::cold) {}

  Verdict check(Plan& plan);
  // Warms up while doubling the runs of one sample until the sample is long enough for the clock.
  // `seconds` becomes the time of one pass as it was last seen.
  int trustworthy_runs(Plan& plan, double& seconds);
  // The mean seconds of one pass over `runs` runs; single runs, whose times are added, where each needs its
  // preparation.
  double sample(Plan& plan, int runs);

  std::int64_t runs() const { return runs_; }
  // What restoring and evicting took for each run, as it was last seen.
  double untimed() const { return untimed_; }

 private:
  Workbench& bench_;
  Clock& clock_;
  const bool one_by_one_, cold_;
  double untimed_ = 0;
  std::int64_t runs_ = 0;
};

}  // namespace gnomon
