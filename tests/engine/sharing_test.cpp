// Eight threads share one engine on the fake backend. Also run under ThreadSanitizer.
#include <latch>
#include <thread>

#include "engine/engine_fixture.hpp"

namespace gnomon::test {
namespace {

template <typename Work>
void in_threads(int count, Work work) {
  std::vector<std::jthread> threads;
  std::latch start(count);
  for (int n = 0; n < count; ++n) {
    threads.emplace_back([&, n] {
      start.arrive_and_wait();
      work(n);
    });
  }
}

TEST_F(EngineTest, EightThreadsOnOneColdProblemPlanItOnce) {
  auto e = engine();
  in_threads(8, [&](int) { EXPECT_TRUE(answers(e, 4, 10)); });
  EXPECT_EQ(e.stats().problems_planned, 1);
  EXPECT_EQ(e.stats().forwards, 8);
}

TEST_F(EngineTest, EightThreadsOnManyProblemsGetTheirAnswersAndPlanOneAtATime) {
  options.max_plans = 3;  // eviction all the time
  auto e = engine();
  in_threads(8, [&](int n) {
    for (int i = 0; i < 60; ++i) EXPECT_TRUE(answers(e, 1 << (n + i) % 6, 1 + (n * i) % 5, 1, n + 1));
    e.stats();
    e.explain_all();
  });
  EXPECT_EQ(world.most_open_benches, 1);
  EXPECT_LE(world.live_plans, 3);
  EXPECT_EQ(e.stats().forwards, 480);
}

TEST_F(EngineTest, APlannedProblemGoesOnWhileAnotherIsPlanned) {
  auto e = engine();
  EXPECT_TRUE(answers(e, 1, 10));
  std::latch planning(1), answered(1);
  world.on_bench = [&] {
    planning.count_down();
    answered.wait();
  };
  std::jthread slow([&] { EXPECT_TRUE(answers(e, 100, 10)); });
  planning.wait();
  EXPECT_TRUE(answers(e, 1, 10));
  answered.count_down();
}

TEST_F(EngineTest, ACallUnderWayEndsOnTheWeightsItStartedWith) {
  auto e = engine();
  EXPECT_TRUE(answers(e, 1, 10));
  std::latch running(1), refreshed(1);
  std::atomic<bool> first = true;
  world.on_run = [&] {
    if (!first.exchange(false)) return;
    running.count_down();
    refreshed.wait();
  };
  {
    std::jthread old([&] { EXPECT_TRUE(answers(e, 1, 10, /*seed=*/1)); });
    running.wait();
    e.refresh(weights(2));
    EXPECT_TRUE(answers(e, 1, 10, 2));
    EXPECT_EQ(world.live_backends, 2);
    refreshed.count_down();
  }
  EXPECT_EQ(world.live_backends, 1);
  EXPECT_EQ(world.live_plans, 1);
}

TEST_F(EngineTest, APlanningUnderWayDuringARefreshDoesNotReachTheNewWeights) {
  auto e = engine();
  std::latch planning(1), refreshed(1);
  std::atomic<bool> first = true;
  world.on_bench = [&] {
    if (!first.exchange(false)) return;
    planning.count_down();
    refreshed.wait();
  };
  {
    std::jthread old([&] { EXPECT_TRUE(answers(e, 1, 10, /*seed=*/1)); });
    planning.wait();
    e.refresh(weights(2));
    refreshed.count_down();
  }
  EXPECT_TRUE(answers(e, 1, 10, 2));
}

TEST_F(EngineTest, RefreshesAmongCallsNeverMixWeights) {
  auto e = engine();
  const double scales[] = {fake_scale(weights(1)), fake_scale(weights(2))};
  in_threads(8, [&](int n) {
    for (int i = 0; i < 40; ++i) {
      if (n == 0) {
        e.refresh(weights(1 + i % 2));
        continue;
      }
      TestTensor input({4, 3, 2}), output({4, 3, 2});
      input.fill(1);
      e.forward({input.const_view(), {}, output.view(), nullptr});
      const auto values = output.values();
      EXPECT_TRUE(std::fabs(values[0] - scales[0]) < 1e-6 || std::fabs(values[0] - scales[1]) < 1e-6) << values[0];
      for (const double value : values) EXPECT_EQ(value, values[0]);
    }
  });
}

TEST_F(EngineTest, WaitersSurviveAPlanningThatFails) {
  auto e = engine();
  world.prepare_fails = true;
  std::atomic<int> failed = 0;
  in_threads(8, [&](int) {
    try {
      answers(e, 4, 10);
    } catch (const Error&) {
      ++failed;
    }
  });
  EXPECT_EQ(failed, 8);
  world.prepare_fails = false;
  EXPECT_TRUE(answers(e, 4, 10));
}

}  // namespace
}  // namespace gnomon::test
