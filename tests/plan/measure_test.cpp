#include "plan/measure.hpp"

#include <gtest/gtest.h>

#include "plan/fake.hpp"

namespace gnomon {
namespace {

struct CountingBench final : Workbench {
  Verdict check(Plan&) override { return {}; }
  void before_timed_run() override {
    EXPECT_FALSE(evicted) << "restoring fills the caches";
    ++restored;
  }
  void evict_caches() override {
    ++evictions;
    evicted = true;
    clock.pass(1);
  }
  void run(Plan&) override {
    clock.pass(seconds + first);
    first = 0;
    evicted = false;
  }
  InputRange input_range() const override { return {}; }

  fake::FakeClock clock;
  double seconds = 0, first = 0;
  int restored = 0, evictions = 0;
  bool evicted = false;
};

struct NoPlan final : Plan {
  void run(const Call&) override {}
  std::int64_t scratch_bytes() const override { return 0; }
};

TEST(Meter, RunsDoubleUntilASampleIsLongEnoughForTheClock) {
  struct Row {
    double seconds;
    int runs;
  };
  for (const Row& row :
       {Row{1.0, 1}, Row{201e-6, 1}, Row{150e-6, 2}, Row{15e-6, 16}, Row{1e-6, 256}, Row{0, 1 << 16}}) {
    CountingBench bench;
    bench.seconds = row.seconds;
    NoPlan plan;
    Meter meter(bench, bench.clock, false);
    double seconds = -1;
    EXPECT_EQ(meter.trustworthy_runs(plan, seconds), row.runs) << row.seconds;
    EXPECT_NEAR(seconds, row.seconds, 1e-9);
    const bool taken_twice = row.seconds > 0 && row.seconds < 2e-3;
    EXPECT_EQ(meter.runs(), 2 * row.runs - 1 + (taken_twice ? row.runs : 0));
  }
}

TEST(Meter, AColdFirstRunDoesNotMakeSamplesShort) {
  CountingBench bench;
  bench.seconds = 15e-6;
  bench.first = 300e-6;
  NoPlan plan;
  Meter meter(bench, bench.clock, false);
  double seconds = -1;
  EXPECT_EQ(meter.trustworthy_runs(plan, seconds), 16);
}

TEST(Meter, ASampleIsTheMeanOfItsRuns) {
  for (const bool restore : {false, true}) {
    CountingBench bench;
    bench.seconds = 1e-4;
    NoPlan plan;
    Meter meter(bench, bench.clock, restore);
    EXPECT_NEAR(meter.sample(plan, 8), 1e-4, 1e-12);
    EXPECT_EQ(bench.restored, restore ? 8 : 1);
    EXPECT_EQ(meter.runs(), 8);
    meter.check(plan);
    EXPECT_EQ(meter.runs(), 9);
  }
}

TEST(Meter, ColdSamplesAreSingleRunsOnEmptiedCachesAndTheirTimesAreAdded) {
  for (const bool restore : {false, true}) {
    CountingBench bench;
    bench.seconds = 15e-6;
    NoPlan plan;
    Meter meter(bench, bench.clock, restore, Timing::cold);
    double seconds = -1;
    EXPECT_EQ(meter.trustworthy_runs(plan, seconds), 16) << "a short pass is repeated until the clock can tell";
    EXPECT_NEAR(seconds, 15e-6, 1e-12);
    EXPECT_EQ(bench.evictions, meter.runs());
    EXPECT_EQ(bench.restored, meter.runs());
    EXPECT_NEAR(meter.untimed(), 1, 1e-6);
  }
}

TEST(SteadyClock, NeverGoesBack) {
  double last = steady_clock().now();
  for (int i = 0; i < 1000; ++i) {
    const double now = steady_clock().now();
    EXPECT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace gnomon
