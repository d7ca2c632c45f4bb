// Planning beside the calls: answers at once, one replacement for each problem, and nothing that a caller could trip
// over. Also run under ThreadSanitizer.
#include "engine/background.hpp"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <latch>
#include <mutex>
#include <thread>

#include "core/log.hpp"
#include "engine/engine_fixture.hpp"

namespace gnomon::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

int threads_of_this_process() {
  DIR* const folder = opendir("/proc/self/task");
  int count = 0;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

class BackgroundTest : public EngineTest {
 protected:
  BackgroundTest() {
    options.set("background", "on");
    // The background's first bench waits until the test lets it go on.
    world.on_bench = [this] {
      if (std::this_thread::get_id() == caller_) return;
      if (!held_.exchange(true)) {
        reached_.count_down();
        release_.wait();
      }
      if (on_background_bench) on_background_bench();
    };
  }
  ~BackgroundTest() override {
    if (!released_) release_.count_down();
  }
  void wait_until_held() { reached_.wait(); }
  void let_go() {
    released_ = true;
    release_.count_down();
  }
  template <typename Condition>
  static bool soon(Condition condition) {
    for (int i = 0; i < 20'000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  }
  static bool idle(Engine& e) {
    return soon([&] { return e.stats().background_pending == 0; });
  }

  std::function<void()> on_background_bench;

 private:
  const std::thread::id caller_ = std::this_thread::get_id();
  std::latch reached_{1}, release_{1};
  std::atomic<bool> held_{false};
  bool released_ = false;
};

TEST_F(BackgroundTest, AnUnseenProblemIsEstimatedAtOnceAndPlannedBeside) {
  auto e = engine();
  EXPECT_TRUE(answers(e, 4, 10));
  wait_until_held();
  EXPECT_TRUE(answers(e, 4, 10)) << "while it is being planned";
  EXPECT_EQ(e.stats().problems_planned, 0);
  EXPECT_EQ(e.stats().background_pending, 1);
  EXPECT_EQ(e.explain(problem(4, 10))->effort, Effort::estimate);
  EXPECT_TRUE(e.store().list().empty());
  let_go();
  ASSERT_TRUE(idle(e));
  EXPECT_EQ(e.stats().background_planned, 1);
  EXPECT_EQ(e.stats().problems_planned, 1);
  EXPECT_EQ(e.explain(problem(4, 10))->effort, Effort::measure);
  EXPECT_GT(e.explain(problem(4, 10))->seconds, 0);
  EXPECT_EQ(e.store().list().size(), 1u);
  const auto before = e.stats();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(answers(e, 4, 10));
  EXPECT_EQ(e.stats().check_runs, before.check_runs);
  EXPECT_EQ(e.stats().background_planned, 1) << "exactly once";
  EXPECT_EQ(e.stats().background_pending, 0);
  EXPECT_EQ(world.live_plans, 1);
}

TEST_F(BackgroundTest, TheNearestPlanLendsAtAnyDistanceUntilThen) {
  auto e = engine();
  plan(e, 4, 10);
  EXPECT_TRUE(answers(e, 4, 3000));
  wait_until_held();
  EXPECT_EQ(e.stats().plans_adopted, 1);
  EXPECT_THAT(e.explain(problem(4, 3000))->notes, Contains("choices borrowed from " + to_string(problem(4, 10))));
  let_go();
  ASSERT_TRUE(idle(e));
  EXPECT_TRUE(e.explain(problem(4, 3000))->notes.empty());
  EXPECT_EQ(e.stats().background_planned, 1);
}

TEST_F(BackgroundTest, WhereNothingHoldsTheCallSaysSo) {
  world.half_is_faster = true;
  options.constraints.forced = {{"precision", "half"}};
  world.half_error = 0.5;
  auto e = engine();
  EXPECT_THROW(answers(e, 4, 10), Error) << "everything is forced to be wrong";
  EXPECT_EQ(e.stats().background_pending, 0) << "there is nothing provisional to replace";
}

TEST_F(BackgroundTest, TheCallersTensorsAreNotTouchedAfterTheCall) {
  world.half_is_faster = true;  // so that the range it was judged on is kept
  auto e = engine();
  {
    TestTensor input({40, 10, 2}, DType::f32, Layout::reversed), output({40, 10, 2});
    input.fill(1.5);
    e.forward({input.const_view(), {}, output.view(), nullptr});
    wait_until_held();
    input.fill(99);
    const auto before = output.storage();
    let_go();
    ASSERT_TRUE(idle(e));
    EXPECT_EQ(output.storage(), before);
  }
  EXPECT_EQ(e.explain(problem(40, 10))->winner.get("precision"), "half");
  EXPECT_EQ(e.explain(problem(40, 10))->verified_range.high, 1.5);
}

TEST_F(BackgroundTest, TheQueueIsBoundedAndALaterCallTriesAgain) {
  auto e = engine();
  constexpr int kProblems = 25;
  EXPECT_TRUE(answers(e, 1, 1));
  wait_until_held();
  for (int s = 2; s <= kProblems; ++s) EXPECT_TRUE(answers(e, 1, s));
  EXPECT_EQ(e.stats().background_pending, 1 + static_cast<std::int64_t>(Background::kMostQueued));
  let_go();
  ASSERT_TRUE(idle(e));
  EXPECT_EQ(e.stats().background_planned, 1 + static_cast<std::int64_t>(Background::kMostQueued));
  for (int s = 1; s <= kProblems; ++s) EXPECT_TRUE(answers(e, 1, s));
  ASSERT_TRUE(idle(e));
  EXPECT_EQ(e.stats().background_planned, kProblems);
}

TEST_F(BackgroundTest, TheEnginesEndCancelsThePlanning) {
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  int runs_of_a_planning = 0;
  {
    auto e = std::make_unique<Engine>(weights(1), options, fake_factory(world), world.clock);
    EXPECT_TRUE(answers(*e, 4, 10));
    EXPECT_TRUE(answers(*e, 4, 1000));
    wait_until_held();
    const int before = world.runs;
    std::jthread ending([&] { e.reset(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    let_go();
    ending.join();
    runs_of_a_planning = world.runs - before;
  }
  EXPECT_LT(runs_of_a_planning, 12) << "the safe plan's check and warm-up, and no more";
  EXPECT_EQ(world.live_plans, 0);
  EXPECT_EQ(world.live_backends, 0);
  options.effort = Effort::stored;
  auto strict = engine();
  EXPECT_THROW(answers(strict, 4, 10), Error) << "half a planning is not stored";
}

TEST_F(BackgroundTest, NewWeightsDropTheWorkForTheOldOnes) {
  auto e = engine();
  EXPECT_TRUE(answers(e, 4, 10));
  EXPECT_TRUE(answers(e, 4, 1000));
  wait_until_held();
  {
    std::jthread refreshing([&] {
      e.refresh(weights(2));
      EXPECT_EQ(world.live_backends, 1) << "the old weights' tensors may go now";
    });
    EXPECT_TRUE(soon([&] { return e.stats().background_pending == 1; })) << "only what is under way, to end early";
    let_go();
  }
  EXPECT_EQ(e.stats().background_pending, 0);
  EXPECT_EQ(e.stats().background_planned, 0);
  EXPECT_TRUE(answers(e, 4, 10, 2));
  ASSERT_TRUE(idle(e));
  EXPECT_EQ(e.stats().background_planned, 1);
  EXPECT_TRUE(answers(e, 4, 10, 2));
}

TEST_F(BackgroundTest, WhatIsForgottenDoesNotComeBack) {
  auto e = engine();
  EXPECT_TRUE(answers(e, 4, 10));
  wait_until_held();
  e.forget(problem(4, 10));
  let_go();
  ASSERT_TRUE(idle(e));
  EXPECT_FALSE(e.explain(problem(4, 10)));
  EXPECT_TRUE(answers(e, 4, 10));
  ASSERT_TRUE(idle(e));
  EXPECT_EQ(e.stats().background_planned, 1);
}

TEST_F(BackgroundTest, APlanThatIsAskedForIsMadeByTheCaller) {
  auto e = engine();
  EXPECT_TRUE(answers(e, 4, 10));
  wait_until_held();
  EXPECT_EQ(plan(e, 4, 10).effort, Effort::measure);
  let_go();
  ASSERT_TRUE(idle(e));
  EXPECT_EQ(e.stats().background_planned, 0);
  EXPECT_EQ(e.stats().problems_planned, 1);
}

TEST_F(BackgroundTest, AFailureIsRecordedAndNeverThrownAtACall) {
  std::vector<std::string> warnings;
  std::mutex warnings_mutex;
  log::set_sink([&](log::Level, std::string_view message) {
    const std::lock_guard lock(warnings_mutex);
    warnings.emplace_back(message);
  });
  on_background_bench = [this] { world.prepare_fails = true; };
  auto e = engine();
  EXPECT_TRUE(answers(e, 4, 17));
  wait_until_held();
  let_go();
  ASSERT_TRUE(idle(e));
  world.prepare_fails = false;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(answers(e, 4, 17));
  ASSERT_TRUE(idle(e));
  log::set_sink({});
  EXPECT_EQ(e.stats().background_failed, 1);
  EXPECT_EQ(e.stats().background_planned, 0);
  EXPECT_THAT(e.explain(problem(4, 17))->notes, Contains(HasSubstr("failed: no candidate")));
  const std::lock_guard lock(warnings_mutex);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("the fake library is broken"));
}

TEST_F(BackgroundTest, NoThreadIsStartedBeforeItIsNeeded) {
  const int before = threads_of_this_process();
  auto e = engine();
  plan(e, 4, 10);
  EXPECT_TRUE(answers(e, 4, 10));
  EXPECT_EQ(threads_of_this_process(), before);
  EXPECT_TRUE(answers(e, 4, 11));
#ifdef __SANITIZE_THREAD__  // whose own thread begins with the first of ours
  EXPECT_GT(threads_of_this_process(), before);
#else
  EXPECT_EQ(threads_of_this_process(), before + 1);
#endif
  wait_until_held();
  let_go();
}

#ifndef __SANITIZE_THREAD__  // which does not follow a fork of several threads
TEST_F(BackgroundTest, AForkedChildWithoutTheThreadPlansInItsCallsAndEnds) {
  auto e = std::make_unique<Engine>(weights(1), options, fake_factory(world), world.clock);
  EXPECT_TRUE(answers(*e, 4, 10));
  wait_until_held();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const bool planned = answers(*e, 4, 3000) && e->explain(problem(4, 3000))->effort == Effort::measure;
    const bool waiting = e->stats().background_pending > 1;
    e.reset();
    _exit(planned && !waiting ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "nobody plans beside the child's calls";
  let_go();
  ASSERT_TRUE(idle(*e));
  EXPECT_EQ(e->stats().background_planned, 1) << "the parent goes on";
}
#endif

std::atomic<bool> bench_is_open{false};

// exit() destroys what a planning uses. What is registered before the thread starts runs after what ends the thread.
TEST_F(BackgroundTest, ExitWaitsForTheThreadOfAnEngineThatNobodyDestroyed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto leave = [this] {
    on_background_bench = [] {
      bench_is_open = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      bench_is_open = false;
    };
    std::atexit([] {
      if (bench_is_open) _exit(7);
    });
    static auto* const e =
        new Engine(weights(1), options, fake_factory(world), world.clock);  // still reachable: no leak
    answers(*e, 4, 10);
    let_go();
    while (!bench_is_open) std::this_thread::yield();
    std::exit(0);
  };
  EXPECT_EXIT(leave(), ::testing::ExitedWithCode(0), "");
}

TEST_F(BackgroundTest, EightThreadsShareAnEngineThatPlansBeside) {
  let_go();
  options.max_plans = 6;  // eviction all the time
  auto e = engine();
  const double scales[] = {fake_scale(weights(1)), fake_scale(weights(2))};
  std::latch start(8);
  {
    std::vector<std::jthread> threads;
    for (int n = 0; n < 8; ++n) {
      threads.emplace_back([&, n] {
        start.arrive_and_wait();
        for (int i = 0; i < 40; ++i) {
          const std::int64_t batch = 1 << (n + i) % 5, seq = 1 + (n * i) % 7;
          TestTensor input({batch, seq, 2}), output({batch, seq, 2});
          input.fill(1);
          e.forward({input.const_view(), {}, output.view(), nullptr});
          for (const double y : output.values()) {
            EXPECT_TRUE(std::fabs(y - scales[0]) < 1e-6 || std::fabs(y - scales[1]) < 1e-6) << y;
          }
          if (n == 0 && i % 8 == 7) e.refresh(weights(1 + i / 8 % 2));
          if (n == 1 && i % 10 == 9) e.forget(problem(batch, seq));
          if (n == 2 && i % 10 == 9) plan(e, batch, seq);
          if (n == 3) e.explain_all(), e.stats();
        }
      });
    }
  }
  EXPECT_EQ(e.stats().forwards, 320);
  EXPECT_EQ(e.stats().background_failed, 0);
  ASSERT_TRUE(idle(e));
  EXPECT_LE(world.live_plans, 6);
}

}  // namespace
}  // namespace gnomon::test
