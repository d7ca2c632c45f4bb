#include "plan/plan_record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "plan/records.hpp"

namespace gnomon {
namespace {

using testing::HasSubstr;

TEST(PlanRecord, JsonRoundTrip) {
  const PlanRecord record = fake::record_of("b64 s100 mask abs=0.001");
  const nlohmann::json json = record;
  const PlanRecord back = json.get<PlanRecord>();
  EXPECT_EQ(nlohmann::json(back), json);
  EXPECT_EQ(back.problem, record.problem);
  EXPECT_EQ(back.winner, record.winner);
  EXPECT_EQ(back.weights_fingerprint, record.weights_fingerprint);
  EXPECT_EQ(back.timing_runs, record.timing_runs);
  EXPECT_EQ(back.made_under, record.made_under);
  EXPECT_EQ(back.verified_range, record.verified_range);
  ASSERT_EQ(back.candidates.size(), 3u);
  EXPECT_TRUE(std::isinf(back.candidates[1].worst));
  EXPECT_EQ(back.candidates[0].ratio_high, 0.26);
  EXPECT_EQ(back.candidates[2].outcome, Outcome::untimed);
}

TEST(PlanRecord, ARangeWithoutALowerEndIsOfAnOlderFileAndJudgedAgain) {
  nlohmann::json old = fake::record_of("b64 s100");
  old["verified_range"] = 4.5;
  const PlanRecord record = old.get<PlanRecord>();
  EXPECT_EQ(record.verified_range, (InputRange{0, 4.5}));
  EXPECT_EQ(record.weights_fingerprint, 0u) << "of no weights: it would be trusted as it is";
}

TEST(PlanRecord, WhatTimeCutShortIsPlannedAnewWithTwiceTheTime) {
  struct Row {
    const char* what;
    Effort made;
    bool cut_short;
    double had;
    Effort wanted;
    double budget;
    bool satisfied;
  };
  constexpr auto measure = Effort::measure, exhaustive = Effort::exhaustive, estimate = Effort::estimate;
  for (const Row& row : {
           Row{"finished", measure, false, 5, measure, 1000, true},
           Row{"finished, more effort", measure, false, 5, exhaustive, 1, false},
           Row{"cut short, the same time", measure, true, 5, measure, 5, true},
           Row{"cut short, a little more", measure, true, 5, measure, 9.9, true},
           Row{"cut short, twice the time", measure, true, 5, measure, 10, false},
           Row{"cut short, but exhaustive", exhaustive, true, 5, measure, 10, false},
           Row{"cut short, an estimate will do", measure, true, 5, estimate, 10, true},
           Row{"cut short by the caller", measure, true, 0, measure, 0.1, false},
           Row{"cut short by the caller, no time", measure, true, 0, measure, 0, true},
       }) {
    PlanRecord record;
    record.effort = row.made;
    record.budget_exhausted = row.cut_short;
    record.budget_seconds = row.had;
    EXPECT_EQ(record.satisfies(row.wanted, row.budget), row.satisfied) << row.what;
  }
}

TEST(PlanRecord, WithoutABudgetTheFileIsOlderAndPlanningHadWhatItTook) {
  nlohmann::json old = fake::record_of("b64 s100");
  old.erase("budget_seconds");
  EXPECT_EQ(old.get<PlanRecord>().budget_seconds, 3.5);
}

TEST(PlanRecord, EveryFieldIsNeededAndHasItsType) {
  const nlohmann::json good = fake::record_of("b64 s100");
  for (const auto& [key, value] : good.items()) {
    nlohmann::json missing = good, wrong = good;
    missing.erase(key);
    wrong[key] = {{"an", "object"}, {"of", 1}};
    if (key != "budget_seconds") {
      EXPECT_ANY_THROW(missing.get<PlanRecord>()) << key;
    }
    EXPECT_ANY_THROW(wrong.get<PlanRecord>()) << key;
  }
  struct Row {
    const char* path;
    nlohmann::json value;
  };
  for (const Row& row :
       {Row{"/problem", "b64 s"}, Row{"/winner", "fast"}, Row{"/effort", "hasty"}, Row{"/timing_runs", 1e300},
        Row{"/timing_runs", 18446744073709551615u}, Row{"/weights_fingerprint", -1}, Row{"/seconds", "soon"},
        Row{"/candidates/0/outcome", "drew"}, Row{"/candidates/0/samples", 5000000000},
        Row{"/candidates/0/ratio", {1, 2}}, Row{"/candidates/0/seconds/1", nullptr}, Row{"/calibrated_on", "x"}}) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(row.path)] = row.value;
    EXPECT_ANY_THROW(bad.get<PlanRecord>()) << row.path;
  }
}

TEST(Explain, TellsEveryCandidateWithItsFate) {
  const std::string text = explain_text(fake::record_of("b64 s100"));
  for (const char* part : {"b64 s100",
                           "winner     path=fast slices=4",
                           "1.25 ms a pass",
                           "plain path 5.00 ms, the winner is 4.00 times faster",
                           "arithmetic: 85 %",
                           "0.440 of the contract's limit",
                           "rows of size 0.5 to 4.5",
                           "5.0 MiB",
                           "exhaustive, 123456789012 runs",
                           "cut short",
                           "only the part was checked",
                           "(the winner)",
                           "path=bad slices=1",
                           "0.250 [0.240, 0.260]",
                           "1.20 ms..1.30 ms",
                           "rejected",
                           "wrote outside the output",
                           "inf",
                           "untimed",
                           "approximate: q_proj,k_proj in bf16; 8 pairs"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Explain, AnEmptyRecordIsStillATable) {
  const std::string text = explain_text(PlanRecord{});
  EXPECT_THAT(text, HasSubstr("not timed"));
  EXPECT_THAT(text, HasSubstr("verdict"));
}

}  // namespace
}  // namespace gnomon
