#include "plan/calibration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/fake.hpp"

namespace gnomon {
namespace {

using fake::Behaviour;
using fake::report_on;
using fake::World;
using testing::Contains;
using testing::HasSubstr;

TEST(Calibration, PrefixKeepsStridesAndCutsTheMask) {
  World world("b6 s5 d8 h1 l1 f8 mask");
  std::vector<std::uint8_t> mask(30, 1);
  world.call.mask = MaskView{mask.data(), {6, 5}, {5, 1}};
  const Call part = prefix_of(world.call, 2, 3);
  EXPECT_EQ(part.input.shape, (std::array<std::int64_t, 3>{2, 3, 8}));
  EXPECT_EQ(part.input.strides, world.call.input.strides);
  EXPECT_EQ(part.output.shape, part.input.shape);
  EXPECT_EQ(part.mask->shape, (std::array<std::int64_t, 2>{2, 3}));
  EXPECT_EQ(part.mask->strides, world.call.mask->strides);
}

TEST(Calibration, PartsArePowersOfTwoOfTheBatchThenOfACausalSequence) {
  struct Row {
    const char* problem;
    double seconds;  // a whole plain pass takes 1 s
    std::int64_t batch, seq;
  };
  for (const Row& row : {Row{"b100 s8 d8 h1 causal", 1.0, 100, 8}, Row{"b100 s8 d8 h1 causal", 0.99, 64, 8},
                         Row{"b100 s8 d8 h1 causal", 0.3, 16, 8}, Row{"b100 s8 d8 h1 causal", 0.005, 1, 4},
                         Row{"b100 s8 d8 h1 bi", 0.005, 1, 8}, Row{"b1 s1000 d8 h1 causal", 0.1, 1, 64},
                         Row{"b1 s1 d8 h1 causal", 0.0, 1, 1}}) {
    World world(row.problem);
    world.backend.behaviour = [](const Candidate&) { return Behaviour{.seconds = 1.0}; };
    const Problem part = part_within(world.backend, world.problem, row.seconds);
    EXPECT_EQ(part.batch, row.batch) << row.problem << " " << row.seconds;
    EXPECT_EQ(part.seq, row.seq) << row.problem << " " << row.seconds;
  }
}

World large() {
  World world("b64 s4 d8 h1 l1 f8");
  world.candidates({{"fast", {.seconds = 0.1}}, {"middle", {.seconds = 0.2}}, {"plain", {.seconds = 1}}});
  return world;
}

TEST(Calibration, ALargeProblemIsTimedOnAPartAndCheckedWhole) {
  World world = large();
  world.options.budget_seconds = 10;
  const PlanResult result = world.plan();
  EXPECT_EQ(result.record.winner.get("path"), "fast");
  EXPECT_EQ(result.record.problem, world.problem);
  EXPECT_EQ(parse_problem(result.record.calibrated_on).batch, 16);
  EXPECT_NEAR(result.record.seconds, 0.1 / 4, 1e-9);
  EXPECT_THAT(result.record.notes, Contains("checked on the whole call"));
  EXPECT_LE(result.record.planning_seconds, 10);
  EXPECT_EQ(world.backend.benches.back(), world.problem);
  EXPECT_EQ(result.record.timing_runs, world.backend.runs);
  result.plan->run(world.call);
  EXPECT_EQ(world.output.back(), 2 * world.input.back() + 1);
}

TEST(Calibration, AChallengerThatThePartCannotShowIsRefused) {
  World world = large();
  world.candidates(
      {{"fast", {.seconds = 0.1, .sequences_to_show = 32}}, {"middle", {.seconds = 0.2}}, {"plain", {.seconds = 1}}});
  world.options.budget_seconds = 10;
  const PlanResult result = world.plan();
  EXPECT_EQ(parse_problem(result.record.calibrated_on).batch, 16);
  EXPECT_EQ(result.record.winner.get("path"), "middle");
  EXPECT_EQ(fake::report_on(result.record, "fast").outcome, Outcome::refused);
  EXPECT_EQ(fake::report_on(result.record, "fast").reason, "needs 32 sequences");
}

TEST(Calibration, ThePartHoldsWhatTheEstimateNeeds) {
  World world = large();
  world.candidates({{"plain", {.seconds = 1, .sequences_to_show = 24}}});  // here the estimate is plain
  world.options.budget_seconds = 10;
  EXPECT_EQ(parse_problem(world.plan().record.calibrated_on).batch, 32);
}

TEST(Calibration, WithoutTimeForTheWholeTheRecordSaysSo) {
  World world = large();
  world.options.budget_seconds = 2;
  const PlanResult result = world.plan();
  EXPECT_EQ(result.record.winner.get("path"), "fast");
  EXPECT_THAT(result.record.notes, Contains(HasSubstr("only the part was checked")));
  EXPECT_LE(result.record.planning_seconds, 2);
}

TEST(Calibration, AWinnerThatIsWrongOnTheWholeFalls) {
  World world = large();
  world.candidates({{"fast", {.seconds = 0.1, .wrong_on_whole = true}}, {"plain", {.seconds = 1}}});
  const PlanResult result = world.plan();
  EXPECT_EQ(result.record.winner.get("path"), "plain");
  EXPECT_EQ(report_on(result.record, "fast").outcome, Outcome::rejected);
  EXPECT_THAT(report_on(result.record, "fast").reason, HasSubstr("on the whole call: 1 of 2048"));
}

TEST(Calibration, AnEstimateThatIsWrongOnTheWholeGivesWayToPlain) {
  World world = large();
  world.candidates({{"fast", {.seconds = 0.1, .wrong_on_whole = true}}, {"plain", {.seconds = 1}}});
  world.backend.estimate_candidate = Candidate::parse("path=fast fuse=off");
  world.options.effort = Effort::estimate;
  const PlanResult result = world.plan();
  EXPECT_EQ(result.record.winner.get("path"), "plain");
  EXPECT_EQ(report_on(result.record, "plain").outcome, Outcome::estimated);
  EXPECT_EQ(report_on(result.record, "fast").outcome, Outcome::rejected);
}

TEST(Calibration, WhenTheReferenceDoesNotFitAPartStandsForTheWhole) {
  World world("b8 s16 d8 h1 l1 f8 causal");
  world.candidates({{"fast", {.seconds = 1e-3}}});
  world.backend.largest_bench = 8 * 8;
  const PlanResult result = world.plan();
  const Problem part = parse_problem(result.record.calibrated_on);
  EXPECT_EQ(part.batch, 1);
  EXPECT_EQ(part.seq, 8);
  EXPECT_EQ(result.record.winner.get("path"), "fast");
  EXPECT_THAT(result.record.notes, Contains(HasSubstr("does not fit in memory")));
}

TEST(Calibration, ReviveJudgesOnWhatItWasPlannedOn) {
  World world = large();
  PlanRecord record = world.plan().record;
  world.backend.benches.clear();
  Planner planner(world.backend, world.clock);
  NotRevived why;
  const auto plan = planner.revive(world.problem, world.call, record, {}, true, why);
  ASSERT_TRUE(plan) << why.reason;
  ASSERT_EQ(world.backend.benches.size(), 1u);
  EXPECT_LE(world.backend.benches[0].batch, 32);
  plan->run(world.call);
  EXPECT_EQ(world.output.back(), 2 * world.input.back() + 1);
}

}  // namespace
}  // namespace gnomon
