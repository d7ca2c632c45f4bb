// The C interface: values in, values out, and every mistake answered with its kind and the argument's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gnomon/gnomon.h"

namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* config = "d16 h2 l2 f48";

struct CApi : testing::Test {
  void SetUp() override {
    ASSERT_EQ(gnomon_weights_random(config, 7, &weights), GNOMON_OK) << gnomon_last_error();
    ASSERT_EQ(gnomon_options_create(&options), GNOMON_OK);
    set("plan_dir", "");
    set("effort", "estimate");
    ASSERT_EQ(gnomon_engine_create(weights, options, &engine), GNOMON_OK) << gnomon_last_error();
  }
  void TearDown() override {
    gnomon_engine_destroy(engine);
    gnomon_options_destroy(options);
    gnomon_weights_destroy(weights);
  }
  void set(const char* name, const char* value) {
    ASSERT_EQ(gnomon_options_set(options, name, value), GNOMON_OK) << gnomon_last_error();
  }
  gnomon_tensor tensor(std::vector<float>& data) { return {data.data(), GNOMON_F32, {2, 3, 16}, {48, 16, 1}}; }

  gnomon_weights* weights = nullptr;
  gnomon_options* options = nullptr;
  gnomon_engine* engine = nullptr;
  std::vector<float> x = std::vector<float>(96, 0.25f), y = std::vector<float>(96, NAN);
};

std::string taken(char* text) {
  const std::string copy = text == nullptr ? "" : text;
  gnomon_free(text);
  return copy;
}

TEST_F(CApi, ForwardWritesEveryElement) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  const gnomon_tensor in = tensor(x), out = tensor(y);
  ASSERT_EQ(gnomon_forward(engine, &in, nullptr, &out, nullptr), GNOMON_OK) << gnomon_last_error();
  EXPECT_STREQ(gnomon_last_error(), "");
  for (const float value : y) EXPECT_TRUE(std::isfinite(value));
}

TEST_F(CApi, APlanningIsCutShortFromAnotherThread) {
  EXPECT_EQ(gnomon_cancel(nullptr), 0);
  EXPECT_EQ(gnomon_cancel(engine), 0) << "nothing is being planned";
  gnomon_engine_destroy(engine);
  set("effort", "exhaustive");
  set("budget", "600");
  ASSERT_EQ(gnomon_engine_create(weights, options, &engine), GNOMON_OK) << gnomon_last_error();

  const gnomon_tensor in = tensor(x), out = tensor(y);
  ASSERT_EQ(gnomon_options_set(options, "budget", "much"), GNOMON_CALLER_ERROR);
  const std::string error = gnomon_last_error();
  std::atomic<bool> done{false};
  gnomon_status status = GNOMON_INTERNAL_ERROR;
  std::thread caller([&] {
    status = gnomon_forward(engine, &in, nullptr, &out, nullptr);
    done = true;
  });
  int cancelled = 0;
  while (!done && (cancelled = gnomon_cancel(engine)) == 0) std::this_thread::yield();
  EXPECT_EQ(gnomon_last_error(), error);
  caller.join();
  EXPECT_EQ(cancelled, 1);
  EXPECT_EQ(status, GNOMON_OK);
  for (const float value : y) EXPECT_TRUE(std::isfinite(value));
  char* record = nullptr;
  ASSERT_EQ(gnomon_explain(engine, "b2 s3", &record), GNOMON_OK) << gnomon_last_error();
  EXPECT_THAT(taken(record), HasSubstr("cut short by the caller"));
  EXPECT_EQ(gnomon_cancel(engine), 0);
}

TEST_F(CApi, MaskedTokensDoNotReachTheOthers) {
  const std::uint8_t valid[6] = {1, 1, 0, 1, 1, 1};
  const gnomon_mask mask = {valid, {2, 3}, {3, 1}};
  const gnomon_tensor in = tensor(x), out = tensor(y);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  ASSERT_EQ(gnomon_forward(engine, &in, &mask, &out, nullptr), GNOMON_OK) << gnomon_last_error();
  const std::vector<float> before = y;
  for (std::size_t i = 32; i < 48; ++i) x[i] = NAN;  // the padded token
  ASSERT_EQ(gnomon_forward(engine, &in, &mask, &out, nullptr), GNOMON_OK) << gnomon_last_error();
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(y[i], before[i]) << i;
}

TEST_F(CApi, NullArgumentsAreTheCallersErrorAndNamed) {
  const gnomon_tensor in = tensor(x);
  gnomon_weights* no_weights = nullptr;
  struct {
    gnomon_status status;
    const char* argument;
    std::string message;
  } rows[] = {
      {gnomon_forward(nullptr, &in, nullptr, &in, nullptr), "engine", gnomon_last_error()},
      {gnomon_forward(engine, nullptr, nullptr, &in, nullptr), "input", gnomon_last_error()},
      {gnomon_plan(engine, &in, nullptr, nullptr, nullptr), "output", gnomon_last_error()},
      {gnomon_weights_random(nullptr, 1, &no_weights), "config", gnomon_last_error()},
      {gnomon_weights_random(config, 1, nullptr), "out", gnomon_last_error()},
      {gnomon_weights_from_safetensors(nullptr, nullptr, &no_weights), "path", gnomon_last_error()},
      {gnomon_weights_from_tensors(config, nullptr, 3, &no_weights), "tensors", gnomon_last_error()},
      {gnomon_weights_save(weights, nullptr), "path", gnomon_last_error()},
      {gnomon_weights_config(nullptr, nullptr), "out", gnomon_last_error()},
      {gnomon_options_create(nullptr), "out", gnomon_last_error()},
      {gnomon_options_set(options, nullptr, "1"), "name", gnomon_last_error()},
      {gnomon_options_set(options, "budget", nullptr), "value", gnomon_last_error()},
      {gnomon_engine_create(nullptr, nullptr, nullptr), "out", gnomon_last_error()},
      {gnomon_engine_refresh(engine, nullptr), "weights", gnomon_last_error()},
      {gnomon_explain(engine, nullptr, nullptr), "out", gnomon_last_error()},
      {gnomon_stats(nullptr, nullptr), "out", gnomon_last_error()},
      {gnomon_plans_export(engine, nullptr), "out", gnomon_last_error()},
      {gnomon_plans_import(engine, nullptr, 0, nullptr), "json", gnomon_last_error()},
      {gnomon_plans_forget(nullptr, nullptr, nullptr), "engine", gnomon_last_error()},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(row.status, GNOMON_CALLER_ERROR) << row.argument;
    EXPECT_THAT(row.message, HasSubstr(std::string("`") + row.argument + "` is NULL"));
  }
}

TEST_F(CApi, BadTensorsAreTheCallersError) {
  gnomon_tensor in = tensor(x), out = tensor(y);
  const auto refused = [&](const char* expected) {
    EXPECT_EQ(gnomon_forward(engine, &in, nullptr, &out, nullptr), GNOMON_CALLER_ERROR);
    EXPECT_THAT(gnomon_last_error(), HasSubstr(expected));
    in = tensor(x);
  };
  const int no_dtype = 17;
  std::memcpy(&in.dtype, &no_dtype, sizeof in.dtype);
  refused("`input` is 17");
  in.data = nullptr;
  refused("`input.data` is NULL");
  in.shape[1] = -3;
  refused("negative");
  in.shape[2] = 8;
  refused("16");
}

TEST_F(CApi, ErrorsKeepTheirKindAndAreOfTheThread) {
  gnomon_weights* none = nullptr;
  EXPECT_EQ(gnomon_weights_from_safetensors("/no/such/file.safetensors", config, &none), GNOMON_ENVIRONMENT_ERROR);
  EXPECT_EQ(none, nullptr);
  const std::string mine = gnomon_last_error();
  EXPECT_THAT(mine, HasSubstr("/no/such/file.safetensors"));
  std::thread([] { EXPECT_STREQ(gnomon_last_error(), ""); }).join();
  EXPECT_EQ(gnomon_last_error(), mine);
  EXPECT_EQ(gnomon_options_set(options, "efort", "measure"), GNOMON_CALLER_ERROR);
  EXPECT_THAT(gnomon_last_error(), HasSubstr("efort"));
}

TEST_F(CApi, ExplainsWhatIsKnown) {
  char* text = nullptr;
  ASSERT_EQ(gnomon_explain(engine, "b2 s3", &text), GNOMON_OK) << gnomon_last_error();
  EXPECT_EQ(taken(text), "null");
  const gnomon_tensor in = tensor(x), out = tensor(y);
  ASSERT_EQ(gnomon_plan(engine, &in, nullptr, &out, nullptr), GNOMON_OK) << gnomon_last_error();
  for (const float value : y) EXPECT_TRUE(std::isnan(value)) << "planning wrote the output";
  ASSERT_EQ(gnomon_explain(engine, "b2 s3", &text), GNOMON_OK) << gnomon_last_error();
  EXPECT_THAT(taken(text), StartsWith("{"));
  ASSERT_EQ(gnomon_explain(engine, nullptr, &text), GNOMON_OK) << gnomon_last_error();
  EXPECT_THAT(taken(text), StartsWith("[{"));
  EXPECT_EQ(gnomon_explain(engine, "b2 s3 d32 h2", &text), GNOMON_CALLER_ERROR);
  EXPECT_THAT(gnomon_last_error(), HasSubstr("d32"));
}

TEST_F(CApi, PlansTravel) {
  const gnomon_tensor in = tensor(x), out = tensor(y);
  ASSERT_EQ(gnomon_plan(engine, &in, nullptr, &out, nullptr), GNOMON_OK) << gnomon_last_error();
  char* text = nullptr;
  ASSERT_EQ(gnomon_plans_export(engine, &text), GNOMON_OK) << gnomon_last_error();
  const std::string exported = taken(text);
  std::size_t count = 0;
  ASSERT_EQ(gnomon_plans_forget(engine, nullptr, &count), GNOMON_OK) << gnomon_last_error();
  EXPECT_EQ(count, 1u);
  ASSERT_EQ(gnomon_plans_import(engine, exported.c_str(), 0, &count), GNOMON_OK) << gnomon_last_error();
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(gnomon_plans_import(engine, "{not json", 0, &count), GNOMON_CALLER_ERROR);
}

TEST_F(CApi, StatsAreJson) {
  char* text = nullptr;
  ASSERT_EQ(gnomon_stats(engine, &text), GNOMON_OK);
  EXPECT_THAT(taken(text), HasSubstr("\"forwards\":0"));
}

TEST(CApiVersion, IsTheProjects) { EXPECT_STREQ(gnomon_version(), GNOMON_VERSION); }

TEST(CApiDestroy, TakesNull) {
  gnomon_engine_destroy(nullptr);
  gnomon_options_destroy(nullptr);
  gnomon_weights_destroy(nullptr);
  gnomon_free(nullptr);
}

}  // namespace
