#include "plan/candidate.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace gnomon {
namespace {

TEST(Candidate, TextRoundTrip) {
  const Candidate candidate({{"fused_qkv", "on"}, {"slices", "4"}});
  EXPECT_EQ(candidate.to_string(), "fused_qkv=on slices=4");
  EXPECT_EQ(Candidate::parse(candidate.to_string()), candidate);
  EXPECT_EQ(Candidate::parse("  fused_qkv=on   slices=4 "), candidate);
  EXPECT_EQ(Candidate::parse(""), Candidate());
  EXPECT_EQ(Candidate::parse("precision=q:bf16=k").get("precision"), "q:bf16=k");
}

TEST(Candidate, MalformedTextIsTheCallersMistake) {
  for (const char* text : {"fused", "=on", "fused=", "a=1 a=2", "a=1 b"})
    EXPECT_THROW(Candidate::parse(text), Error) << text;
}

TEST(Candidate, ChangesKeepTheOrderOfNames) {
  const Candidate candidate = Candidate::parse("a=1 b=2 c=3");
  const Choice changes[] = {{"c", "9"}, {"a", "8"}, {"d", "7"}};
  EXPECT_EQ(candidate.with(changes).to_string(), "a=8 b=2 c=9 d=7");
  EXPECT_TRUE(Candidate::parse("x=on").on("x"));
  EXPECT_FALSE(Candidate::parse("x=off").on("x"));
  EXPECT_EQ(candidate.find("z"), nullptr);
  EXPECT_THROW(candidate.get("z"), Error);
}

TEST(Constraints, TextIsTheKeyAndForgetsTheOrderOfForcing) {
  EXPECT_EQ(Constraints{}.to_string(), "");
  Constraints one{.forced = {{"b", "2"}, {"a", "1"}},
                  .fp32_only = true,
                  .exact_activation = true,
                  .memory_limit = 512,
                  .threads = 2,
                  .timing = Timing::cold};
  Constraints two = one;
  std::swap(two.forced[0], two.forced[1]);
  EXPECT_EQ(one.to_string(), "a=1 b=2 fp32_only exact_activation memory_limit=512 threads<=2 timing=cold");
  EXPECT_EQ(one.to_string(), two.to_string());
}

}  // namespace
}  // namespace gnomon
