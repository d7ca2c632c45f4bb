// EngineOptions::set: what each option takes, and what is said when it is given something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "engine/engine.hpp"

namespace gnomon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(std::string_view name, std::string_view value) {
  EngineOptions options;
  try {
    options.set(name, value);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::caller);
    return error.what();
  }
  return "";
}

TEST(EngineOptionsTest, TextSetsEachOption) {
  EngineOptions options;
  const std::pair<const char*, const char*> texts[] = {
      {"device", "cuda:1"},       {"effort", "exhaustive"},
      {"budget", "0.5"},          {"total_budget", "2"},
      {"plan_dir", "/tmp/plans"}, {"fp32_only", "on"},
      {"exact_activation", "on"}, {"memory_limit", "512MiB"},
      {"threads", "3"},           {"force", "fused_qkv=off,slices=4"},
      {"abs", "0.001"},           {"rel", "0"},
      {"headroom", "0.5"},        {"max_plans", "7"},
      {"range_check", "off"},     {"timing", "cold"},
      {"background", "on"},
  };
  for (const auto& [name, value] : texts) options.set(name, value);
  EXPECT_EQ(options.device, "cuda:1");
  EXPECT_EQ(options.effort, Effort::exhaustive);
  EXPECT_EQ(options.budget_seconds, 0.5);
  EXPECT_EQ(options.total_budget_seconds, 2);
  EXPECT_EQ(options.plan_directory, std::filesystem::path("/tmp/plans"));
  EXPECT_TRUE(options.constraints.fp32_only);
  EXPECT_TRUE(options.constraints.exact_activation);
  EXPECT_EQ(options.constraints.memory_limit, 512 << 20);
  EXPECT_EQ(options.constraints.threads, 3);
  EXPECT_EQ(options.constraints.forced, (std::vector<Choice>{{"fused_qkv", "off"}, {"slices", "4"}}));
  EXPECT_EQ(options.contract, (Contract{0.001, 0, 0.5}));
  EXPECT_EQ(options.max_plans, 7u);
  EXPECT_EQ(options.range_check, "off");
  EXPECT_EQ(options.constraints.timing, Timing::cold);
  EXPECT_TRUE(options.background);
}

TEST(EngineOptionsTest, SizesTakeBinaryUnits) {
  const std::pair<const char*, std::int64_t> rows[] = {
      {"0", 0}, {"123", 123}, {"7B", 7}, {"2KiB", 2048}, {"1.5GiB", 3ll << 29}};
  for (const auto& [text, bytes] : rows) {
    EngineOptions options;
    options.set("memory_limit", text);
    EXPECT_EQ(options.constraints.memory_limit, bytes) << text;
  }
}

TEST(EngineOptionsTest, ARefusalNamesTheOptionAndWhatItTakes) {
  const std::pair<const char*, const char*> rows[] = {
      {"effort", "hard"},      {"effort", ""},           {"budget", "-1"},        {"budget", "nan"},
      {"budget", "ten"},       {"budget", "1s"},         {"fp32_only", "yes"},    {"memory_limit", "5MB"},
      {"memory_limit", "-1"},  {"memory_limit", "1e30"}, {"memory_limit", "KiB"}, {"threads", "0"},
      {"threads", "1.5"},      {"force", "fused_qkv"},   {"force", "=on"},        {"force", "slices="},
      {"abs", "-0.1"},         {"headroom", "0"},        {"headroom", "1.5"},     {"max_plans", "0"},
      {"range_check", "host"}, {"timing", "hot"},        {"background", "maybe"}, {"force", "slices=4,slices=2"},
  };
  for (const auto& [name, value] : rows) {
    EXPECT_THAT(refusal(name, value), AllOf(HasSubstr(std::string("option ") + name + ": expected "),
                                            HasSubstr(std::string("got \"") + value + "\"")))
        << name << "=" << value;
  }
  EXPECT_EQ(refusal("threads", "many"), "option threads: expected a whole number, 1 or more, got \"many\"");
}

TEST(EngineOptionsTest, AnUnknownOptionListsThemAll) {
  EXPECT_EQ(refusal("efort", "measure"),
            "unknown option \"efort\"; the options are device, effort, budget, total_budget, plan_dir, fp32_only, "
            "exact_activation, "
            "memory_limit, threads, force, timing, background, abs, rel, headroom, max_plans, range_check");
}

}  // namespace
}  // namespace gnomon
