// One thread, one engine, a fake backend: which plan answers, at what cost, and what is said when none can.
#include "engine/engine_fixture.hpp"
#include "support/allocation_counter.hpp"

namespace gnomon::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(EngineTest, TheFirstCallPlansAndTheSecondRuns) {
  auto e = engine();
  EXPECT_TRUE(answers(e, 4, 10));
  const auto first = e.stats();
  EXPECT_EQ(first.problems_planned, 1);
  EXPECT_GT(first.timing_runs, 0);
  EXPECT_GT(first.check_runs, 0);
  const int runs = world.runs;
  EXPECT_TRUE(answers(e, 4, 10));
  EXPECT_EQ(world.runs, runs + 1);
  EXPECT_EQ(e.stats().timing_runs, first.timing_runs);
  EXPECT_EQ(e.stats().forwards, 2);
  EXPECT_EQ(e.stats().scratch_bytes, 4000);
  EXPECT_EQ(e.stats().packed_bytes, 500);
  EXPECT_EQ(e.explain(problem(4, 10))->winner.to_string(), "path=fast precision=f32");
}

TEST_F(EngineTest, APlannedCallAllocatesNothing) {
  options.max_plans = 300;
  auto e = engine();
  TestTensor input({3, 10, 2}), output({3, 10, 2});
  input.fill(1);
  const Call call{input.const_view(), {}, output.view(), nullptr};
  for (std::int64_t s = 1; s <= 300; ++s) EXPECT_TRUE(answers(e, 1, s));
  e.forward(call);
  const AllocationCounter counter;
  for (int i = 0; i < 100; ++i) e.forward(call);
  EXPECT_EQ(counter.ours(), 0);
}

TEST_F(EngineTest, AnEmptyInputReturnsAtOnce) {
  auto e = engine();
  for (const auto& shape : {std::array<std::int64_t, 3>{0, 10, 2}, {3, 0, 2}, {0, 0, 2}}) {
    TestTensor input(shape), output(shape);
    e.forward({input.const_view(), {}, output.view(), nullptr});
    EXPECT_EQ(error_of([&] { e.plan({input.const_view(), {}, output.view(), nullptr}); }).kind(), ErrorKind::caller);
  }
  EXPECT_EQ(world.prepared, 0);
  EXPECT_EQ(e.stats().problems_planned, 0);
  EXPECT_TRUE(e.explain_all().empty());
}

TEST_F(EngineTest, TheLeastRecentlyUsedPlanIsGivenBackAndRevivedWithoutARun) {
  options.max_plans = 2;
  auto e = engine();
  EXPECT_TRUE(answers(e, 1, 10));
  EXPECT_TRUE(answers(e, 16, 10));
  EXPECT_TRUE(answers(e, 1, 10));
  EXPECT_TRUE(answers(e, 256, 10));
  EXPECT_EQ(e.stats().plans_evicted, 1);
  EXPECT_EQ(world.live_plans, 2);
  const auto before = e.stats();
  EXPECT_TRUE(answers(e, 1, 10));
  EXPECT_EQ(e.stats().store_hits, 0) << "the one used last was given back";
  EXPECT_TRUE(answers(e, 16, 10));
  EXPECT_EQ(e.stats().store_hits, 1);
  EXPECT_EQ(e.stats().timing_runs, before.timing_runs);
  EXPECT_EQ(e.stats().problems_planned, 3);
}

TEST_F(EngineTest, TheBackendIsAskedToTrimOncePlansAreGone) {
  options.max_plans = 2;
  auto e = engine();
  EXPECT_TRUE(answers(e, 1, 10));
  EXPECT_TRUE(answers(e, 100, 10));
  EXPECT_EQ(world.live_plans_at_trim, 2);
  world.live_plans_at_trim = -1;
  EXPECT_TRUE(answers(e, 10'000, 10));
  EXPECT_EQ(world.live_plans_at_trim, 2);
  world.live_plans_at_trim = -1;
  EXPECT_TRUE(answers(e, 1, 10));  // revived from the store, nothing is planned
  EXPECT_EQ(world.live_plans_at_trim, 2);
  e.forget(problem(1, 10));
  EXPECT_EQ(world.live_plans_at_trim, 1);
  e.forget({});
  EXPECT_EQ(world.live_plans_at_trim, 0);
}

TEST_F(EngineTest, ThreeHundredLengthsKeepMemoryFlat) {
  options.max_plans = 8;
  auto e = engine();
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t s = 1; s <= 300; ++s) EXPECT_TRUE(answers(e, 1, s)) << s;
    EXPECT_EQ(world.live_plans, 8);
  }
  const auto stats = e.stats();
  EXPECT_EQ(stats.plans_adopted + stats.problems_planned, 300) << "a judged loan is judged once";
  EXPECT_LT(stats.problems_planned, 12);
}

TEST_F(EngineTest, AWarmStoreNeedsNoTimingRun) {
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  {
    auto cold = engine();
    EXPECT_TRUE(answers(cold, 4, 10));
    EXPECT_GT(cold.stats().timing_runs, 0);
  }
  auto warm = engine();
  const int benches = world.benches;
  EXPECT_TRUE(answers(warm, 4, 10));
  EXPECT_EQ(warm.stats().timing_runs, 0);
  EXPECT_EQ(warm.stats().check_runs, 0);
  EXPECT_EQ(warm.stats().store_hits, 1);
  EXPECT_EQ(world.benches, benches);
  auto other_weights = engine(2);
  EXPECT_TRUE(answers(other_weights, 4, 10, 2));
  EXPECT_EQ(other_weights.stats().timing_runs, 0) << "an exact winner is exact for any weights";
}

TEST_F(EngineTest, AnApproximateWinnerIsJudgedOncePerWeights) {
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  world.half_is_faster = true;
  {
    auto cold = engine();
    EXPECT_TRUE(answers(cold, 4, 10));
    EXPECT_EQ(cold.explain(problem(4, 10))->winner.get("precision"), "half");
  }
  auto same = engine();
  EXPECT_TRUE(answers(same, 4, 10));
  EXPECT_EQ(same.stats().timing_runs, 0);
  auto other = engine(2);
  EXPECT_TRUE(answers(other, 4, 10, 2));
  EXPECT_EQ(other.stats().check_runs, 1);
  EXPECT_EQ(other.stats().problems_planned, 0);
  EXPECT_TRUE(answers(other, 4, 10, 2));
  EXPECT_EQ(other.stats().check_runs, 1);
  auto other_again = engine(2);
  EXPECT_TRUE(answers(other_again, 4, 10, 2));
  EXPECT_EQ(other_again.stats().check_runs, 0) << "the store remembers which weights it was judged with";
}

TEST_F(EngineTest, AWinnerThatBreaksTheContractWithOtherWeightsIsPlannedAnew) {
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  world.half_is_faster = true;
  {
    auto cold = engine();
    EXPECT_TRUE(answers(cold, 4, 10));
  }
  world.half_error = 0.5;
  auto e = engine(2);
  EXPECT_TRUE(answers(e, 4, 10, 2));
  EXPECT_EQ(e.stats().problems_planned, 1);
  EXPECT_EQ(e.explain(problem(4, 10))->winner.get("precision"), "f32");
}

TEST_F(EngineTest, AnotherDriverIsJudgedAndAnotherEnvironmentIsAMiss) {
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  {
    auto cold = engine();
    EXPECT_TRUE(answers(cold, 4, 10));
  }
  world.driver = "2";
  {
    auto e = engine();
    EXPECT_TRUE(answers(e, 4, 10));
    EXPECT_EQ(e.stats().problems_planned, 0);
    EXPECT_EQ(e.stats().check_runs, 1);
  }
  world.isa = "other";
  {
    auto e = engine();
    EXPECT_TRUE(answers(e, 4, 10));
    EXPECT_EQ(e.stats().problems_planned, 1);
  }
  world.isa = "fake";
  auto back = engine();
  EXPECT_TRUE(answers(back, 4, 10));
  EXPECT_EQ(back.stats().problems_planned, 0) << "the old environment's entry stays";
}

TEST_F(EngineTest, APlanImportedByForceIsJudgedOnce) {
  auto here = engine();
  EXPECT_TRUE(answers(here, 4, 10));
  world.isa = "other";
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  {
    auto there = engine();
    EXPECT_EQ(error_of([&] { there.store().import_json(here.store().export_json(), false); }).kind(),
              ErrorKind::caller);
    EXPECT_EQ(there.store().import_json(here.store().export_json(), true), 1u);
    EXPECT_TRUE(answers(there, 4, 10));
    EXPECT_EQ(there.stats().problems_planned, 0);
    EXPECT_EQ(there.stats().check_runs, 1);
  }
  auto again = engine();
  EXPECT_TRUE(answers(again, 4, 10));
  EXPECT_EQ(again.stats().check_runs, 0);
}

TEST_F(EngineTest, NearProblemsBorrowAndFarOnesArePlanned) {
  auto e = engine();
  EXPECT_TRUE(answers(e, 16, 32));
  const std::tuple<std::int64_t, std::int64_t, bool> rows[] = {// B, S, borrows
                                                               {32, 32, true}, {8, 32, true},   {16, 64, true},
                                                               {32, 16, true}, {16, 65, false}, {7, 32, false},
                                                               {33, 64, true} /* from 16x65 */};
  for (const auto& [batch, seq, borrows] : rows) {
    const auto before = e.stats();
    EXPECT_TRUE(answers(e, batch, seq));
    EXPECT_EQ(e.stats().plans_adopted - before.plans_adopted, borrows && !(batch == 33)) << batch << "x" << seq;
    EXPECT_EQ(e.stats().problems_planned - before.problems_planned, !borrows || batch == 33) << batch << "x" << seq;
  }
}

TEST_F(EngineTest, ALoanIsJudgedKeptInMemoryAndReplacedWhenAPlanIsAskedFor) {
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  auto e = engine();
  EXPECT_TRUE(answers(e, 16, 32));
  const auto before = e.stats();
  EXPECT_TRUE(answers(e, 16, 30));
  EXPECT_EQ(e.stats().check_runs, before.check_runs + 1);
  EXPECT_THAT(e.explain(problem(16, 30))->notes, ElementsAre("choices borrowed from " + to_string(problem(16, 32))));
  EXPECT_EQ(e.store().list().size(), 1u) << "a loan is not stored";
  EXPECT_TRUE(answers(e, 16, 30));
  EXPECT_EQ(e.stats().check_runs, before.check_runs + 1);

  const auto record = plan(e, 16, 30);
  EXPECT_THAT(record.notes, Not(Contains(HasSubstr("borrowed"))));
  EXPECT_EQ(e.stats().problems_planned, 2);
  EXPECT_EQ(e.store().list().size(), 2u);
  plan(e, 16, 30);
  EXPECT_EQ(e.stats().problems_planned, 2);
}

TEST_F(EngineTest, ALoanThatIsRefusedIsPlanned) {
  world.largest_fast_batch = 16;
  auto e = engine();
  EXPECT_TRUE(answers(e, 16, 8));
  EXPECT_TRUE(answers(e, 20, 8));
  EXPECT_EQ(e.stats().plans_adopted, 0);
  EXPECT_EQ(e.explain(problem(20, 8))->winner.get("path"), "plain");
}

TEST_F(EngineTest, WhenTheTotalBudgetIsSpentChoicesAreBorrowedOrEstimated) {
  options.total_budget_seconds = 5;
  world.on_bench = [&] { world.clock.pass(10); };  // one planning spends it
  auto e = engine();
  EXPECT_TRUE(answers(e, 16, 32));
  world.on_bench = nullptr;
  EXPECT_TRUE(answers(e, 512, 32));
  EXPECT_EQ(e.stats().problems_planned, 1);
  EXPECT_EQ(e.stats().plans_adopted, 1) << "32 times larger, but there is no time to plan it";

  TestTensor input({16, 32, 2}, DType::f16), output({16, 32, 2}, DType::f16);  // nobody to borrow from
  input.fill(1);
  e.forward({input.const_view(), {}, output.view(), nullptr});
  EXPECT_EQ(e.explain({.batch = 16, .seq = 32, .config = kTiny, .dtype = DType::f16})->effort, Effort::estimate);

  EXPECT_EQ(e.explain(problem(512, 32))->seconds, 0) << "a loan was never timed";
  EXPECT_GT(plan(e, 512, 32).seconds, 0) << "a plan that is asked for is made";
}

TEST_F(EngineTest, ColdAndWarmPlansAreNeverTakenForEachOther) {
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  auto warm = engine();
  options.set("timing", "cold");
  auto cold = engine();
  EXPECT_TRUE(answers(warm, 16, 32));
  EXPECT_TRUE(answers(cold, 16, 32));
  EXPECT_EQ(cold.stats().problems_planned, 1);
  EXPECT_EQ(cold.stats().store_hits + cold.stats().plans_adopted, 0);
  EXPECT_EQ(cold.explain(problem(16, 32))->constraints, "timing=cold");
  EXPECT_EQ(warm.explain(problem(16, 32))->constraints, "");
  EXPECT_EQ(warm.explain_all().size(), 1u);
  EXPECT_EQ(cold.store().list().size(), 2u);
}

TEST_F(EngineTest, AStoredEstimateIsNoAnswerToMeasure) {
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  options.effort = Effort::estimate;
  {
    auto e = engine();
    EXPECT_TRUE(answers(e, 16, 32));
    EXPECT_EQ(e.stats().check_runs + e.stats().timing_runs > 0, e.explain(problem(16, 32))->worst > 0);
  }
  options.effort = Effort::measure;
  auto e = engine();
  EXPECT_TRUE(answers(e, 16, 32));
  EXPECT_EQ(e.stats().problems_planned, 1);
  EXPECT_EQ(e.stats().store_hits, 0);
  options.effort = Effort::estimate;
  auto lazy = engine();
  EXPECT_TRUE(answers(lazy, 16, 32));
  EXPECT_EQ(lazy.explain(problem(16, 32))->effort, Effort::measure) << "better than asked for";
}

TEST_F(EngineTest, CancellingKeepsTheBestSoFarAndStoresIt) {
  auto e = engine();
  EXPECT_FALSE(e.cancel()) << "nothing is being planned";
  world.on_bench = [&] {
    EXPECT_TRUE(e.cancel());
    EXPECT_FALSE(e.cancel()) << "told before: a second Ctrl-C must end the program";
  };
  EXPECT_TRUE(answers(e, 16, 32));
  world.on_bench = nullptr;
  EXPECT_FALSE(e.cancel());
  const auto record = e.store().find(problem(16, 32), {});
  ASSERT_TRUE(record);
  EXPECT_EQ(record->winner.get("path"), "plain");
  EXPECT_THAT(record->notes, Contains(HasSubstr("cut short by the caller")));
  EXPECT_TRUE(answers(e, 16, 320));
  EXPECT_EQ(e.explain(problem(16, 320))->winner.get("path"), "fast") << "one planning is cancelled, not all";
}

TEST_F(EngineTest, APlanThatTheCallerCutShortIsPlannedAnewByTheNextEngine) {
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  const auto path_of = [&](const EngineOptions& its) {
    Engine e(weights(1), its, fake_factory(world), world.clock);
    if (world.on_bench) world.on_bench = [&] { e.cancel(); };
    EXPECT_TRUE(answers(e, 16, 32));
    return e.explain(problem(16, 32))->winner.get("path");
  };
  world.on_bench = [] {};
  EXPECT_EQ(path_of(options), "plain");
  world.on_bench = nullptr;
  auto other = options;
  other.effort = Effort::stored;
  EXPECT_EQ(path_of(other), "plain") << "there is no better one";
  other.effort = Effort::estimate;
  EXPECT_EQ(path_of(other), "plain") << "an estimate asks for no timing";
  EXPECT_EQ(path_of(options), "fast");
  EXPECT_EQ(path_of(other), "fast");
}

TEST_F(EngineTest, APlanThatTimeCutShortIsPlannedAnewWithTwiceTheTime) {
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  options.budget_seconds = 1;
  world.on_bench = [&] { world.clock.pass(0.99); };
  const auto planned_to = [&] {
    auto e = engine();
    EXPECT_TRUE(answers(e, 16, 32));
    return std::pair(e.stats().problems_planned, e.explain(problem(16, 32))->winner.get("path"));
  };
  EXPECT_EQ(planned_to(), std::pair(std::int64_t{1}, std::string("plain")));
  EXPECT_EQ(planned_to(), std::pair(std::int64_t{0}, std::string("plain")));
  options.budget_seconds = 2;
  EXPECT_EQ(planned_to(), std::pair(std::int64_t{1}, std::string("fast")));
  options.budget_seconds = 100;
  EXPECT_EQ(planned_to(), std::pair(std::int64_t{0}, std::string("fast"))) << "that one had time enough";
}

TEST_F(EngineTest, StoredEffortRunsOnlyWhatIsStored) {
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  options.effort = Effort::stored;
  auto strict = engine();
  const Error error = error_of([&] { answers(strict, 4, 10); });
  EXPECT_EQ(error.kind(), ErrorKind::caller);
  EXPECT_THAT(error.what(), HasSubstr("holds no plan for " + to_string(problem(4, 10))));
  EXPECT_THAT(error.what(), HasSubstr(strict.store().file().string()));
  EXPECT_EQ(world.prepared, 0);

  options.effort = Effort::measure;
  auto planner = engine();
  EXPECT_TRUE(answers(planner, 4, 10));
  EXPECT_TRUE(answers(strict, 4, 10)) << "what another engine has stored since is found";
  EXPECT_EQ(error_of([&] { answers(strict, 4, 11); }).kind(), ErrorKind::caller) << "nothing is borrowed";
}

TEST_F(EngineTest, AStoredPlanThatBreaksTheContractIsJudgedOnce) {
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  world.half_is_faster = true;
  {
    auto cold = engine();
    EXPECT_TRUE(answers(cold, 4, 10));
  }
  world.half_error = 0.5;
  options.effort = Effort::stored;
  auto strict = engine(2);
  const int benches = world.benches;
  const Error first = error_of([&] { answers(strict, 4, 10, 2); });
  EXPECT_EQ(first.kind(), ErrorKind::caller);
  EXPECT_THAT(first.what(), HasSubstr("out of contract"));
  for (int i = 0; i < 3; ++i) {
    const Error again = error_of([&] { answers(strict, 4, 10, 2); });
    EXPECT_STREQ(again.what(), first.what());
  }
  EXPECT_EQ(world.benches, benches + 1);
  EXPECT_EQ(strict.stats().check_runs, 1);

  world.half_error = 1e-4;
  strict.refresh(weights(3));
  EXPECT_TRUE(answers(strict, 4, 10, 3)) << "other weights are another question";
  world.half_error = 0.5;
  strict.refresh(weights(2));
  EXPECT_THROW(answers(strict, 4, 10, 2), Error);
  options.effort = Effort::measure;
  auto planner = engine(2);
  EXPECT_TRUE(answers(planner, 4, 10, 2));
  EXPECT_TRUE(answers(strict, 4, 10, 2)) << "another plan is another question";
}

// No memory now says nothing about the next call.
TEST_F(EngineTest, AStoredPlanThatCouldNotBeMadeIsTriedAgain) {
  auto e = engine();
  EXPECT_TRUE(answers(e, 4, 10));
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  options.effort = Effort::stored;
  auto strict = engine();
  strict.store().import_json(e.store().export_json(), false);
  world.prepare_fails = true;
  EXPECT_THAT(error_of([&] { answers(strict, 4, 10); }).what(), HasSubstr("the fake library is broken"));
  world.prepare_fails = false;
  EXPECT_TRUE(answers(strict, 4, 10));
}

TEST_F(EngineTest, AFailedPlanningLeavesTheEngineUsable) {
  auto e = engine();
  EXPECT_TRUE(answers(e, 1, 10));
  world.prepare_fails = true;
  const Error error = error_of([&] { answers(e, 100, 10); });
  EXPECT_EQ(error.kind(), ErrorKind::environment);
  EXPECT_TRUE(answers(e, 1, 10));
  world.prepare_fails = false;
  EXPECT_TRUE(answers(e, 100, 10));
}

TEST_F(EngineTest, RunningOutOfMemoryInACallLosesNothing) {
  auto e = engine();
  EXPECT_TRUE(answers(e, 3, 10));
  world.run_out_of_memory = true;
  const Error error = error_of([&] { answers(e, 3, 10); });
  EXPECT_EQ(error.kind(), ErrorKind::environment);
  EXPECT_THAT(error.what(), HasSubstr("3000 bytes of scratch beside 500 bytes of packed weights"));
  EXPECT_EQ(error_of([&] { answers(e, 300, 10); }).kind(), ErrorKind::environment);
  world.run_out_of_memory = false;
  EXPECT_TRUE(answers(e, 3, 10));
  EXPECT_EQ(e.stats().problems_planned, 1);
}

TEST_F(EngineTest, ConstraintsThatLeaveNothingAreACallersError) {
  options.constraints.forced = {{"path", "magic"}};
  auto e = engine();
  EXPECT_EQ(error_of([&] { answers(e, 3, 10); }).kind(), ErrorKind::caller);
  options.constraints.forced = {{"path", "plain"}};
  auto plain = engine();
  EXPECT_TRUE(answers(plain, 3, 10));
  EXPECT_EQ(plain.explain(problem(3, 10))->winner.get("path"), "plain");
}

TEST_F(EngineTest, RefreshUsesTheNewWeightsAndFreesTheOld) {
  world.half_is_faster = true;
  auto e = engine();
  EXPECT_TRUE(answers(e, 3, 10));
  e.refresh(weights(2));
  EXPECT_EQ(world.live_backends, 1);
  EXPECT_EQ(world.live_plans, 0);
  const auto before = e.stats();
  EXPECT_TRUE(answers(e, 3, 10, 2));
  EXPECT_EQ(e.stats().problems_planned, 1);
  EXPECT_EQ(e.stats().check_runs, before.check_runs + 1);

  const Error error =
      error_of([&] { e.refresh(Weights::random({.layers = 2, .d_model = 2, .n_heads = 1, .d_ff = 2}, 1)); });
  EXPECT_EQ(error.kind(), ErrorKind::caller);
  EXPECT_TRUE(answers(e, 3, 10, 2));
}

TEST_F(EngineTest, RangeFallbacksAreCountedEvenWhenThePlanIsGone) {
  world.half_is_faster = true;
  auto e = engine();
  EXPECT_TRUE(answers(e, 3, 10, 1, 1.5));
  EXPECT_EQ(e.stats().range_fallbacks, 0);
  EXPECT_TRUE(answers(e, 3, 10, 1, 15));
  EXPECT_EQ(e.stats().range_fallbacks, 1);
  e.refresh(weights(1));
  EXPECT_EQ(e.stats().range_fallbacks, 1);

  options.range_check = "off";
  auto unguarded = engine();
  EXPECT_TRUE(answers(unguarded, 3, 10, 1, 1.5));
  EXPECT_TRUE(answers(unguarded, 3, 10, 1, 15));
  EXPECT_EQ(unguarded.stats().range_fallbacks, 0);
}

TEST_F(EngineTest, AReviewedPlanIsTrustedOnTheRangeOfItsReview) {
  world.half_is_faster = true;
  auto e = engine();
  EXPECT_TRUE(answers(e, 3, 10, 1, 15));
  e.refresh(weights(2));
  EXPECT_TRUE(answers(e, 3, 10, 2, 2));  // judged here, on inputs up to 2
  EXPECT_EQ(e.stats().range_fallbacks, 0);
  EXPECT_TRUE(answers(e, 3, 10, 2, 15));
  EXPECT_EQ(e.stats().range_fallbacks, 1);
}

TEST_F(EngineTest, ForgettingDropsThePlanFromMemoryAndStore) {
  auto e = engine();
  EXPECT_TRUE(answers(e, 1, 10));
  EXPECT_TRUE(answers(e, 100, 10));
  EXPECT_EQ(e.explain_all().size(), 2u);
  EXPECT_EQ(e.forget(problem(1, 10)), 1u);
  EXPECT_FALSE(e.explain(problem(1, 10)));
  EXPECT_EQ(world.live_plans, 1);
  EXPECT_EQ(e.forget({}), 1u);
  EXPECT_TRUE(e.explain_all().empty());
  EXPECT_TRUE(answers(e, 1, 10));
  EXPECT_EQ(e.stats().problems_planned, 3);
}

TEST_F(EngineTest, TwoEnginesOfOneFolderExplainWhatBothPlanned) {
  const TemporaryDirectory folder;
  options.plan_directory = folder.path();
  auto a = engine(), b = engine();
  EXPECT_TRUE(answers(a, 1, 10));
  EXPECT_TRUE(answers(b, 100, 10));
  EXPECT_EQ(a.explain_all().size(), 2u);
  EXPECT_EQ(a.explain(problem(100, 10))->problem, problem(100, 10));
}

TEST_F(EngineTest, WrongCallsAreRefusedBeforeAnythingRuns) {
  auto e = engine();
  TestTensor input({3, 10, 4}), output({3, 10, 4});
  EXPECT_EQ(error_of([&] { e.forward({input.const_view(), {}, output.view(), nullptr}); }).kind(), ErrorKind::caller);
  EXPECT_EQ(world.prepared, 0);
}

}  // namespace
}  // namespace gnomon::test
