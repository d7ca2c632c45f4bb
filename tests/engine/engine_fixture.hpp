// An engine on the fake backend, and calls to it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/fake_backend.hpp"
#include "support/temporary_directory.hpp"

namespace gnomon::test {

inline const StackConfig kTiny{.layers = 1, .d_model = 2, .n_heads = 1, .d_ff = 2};

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    options.plan_directory = "";
    options.budget_seconds = 5;
    options.total_budget_seconds = 1e6;
  }
  Engine engine(std::uint64_t seed = 1) { return Engine(weights(seed), options, fake_factory(world), world.clock); }
  static Weights weights(std::uint64_t seed) { return Weights::random(kTiny, seed); }

  // One call; true when the answer is input * scale of those weights.
  static ::testing::AssertionResult answers(Engine& engine, std::int64_t batch, std::int64_t seq,
                                            std::uint64_t seed = 1, double value = 1.5) {
    TestTensor input({batch, seq, 2}), output({batch, seq, 2});
    input.fill(value);
    engine.forward({input.const_view(), {}, output.view(), nullptr});
    const double expected = value * fake_scale(weights(seed));
    for (const double y : output.values()) {
      if (!(std::fabs(y - expected) <= 1e-3 * std::fabs(expected))) {
        return ::testing::AssertionFailure() << y << " instead of " << expected;
      }
    }
    return ::testing::AssertionSuccess();
  }
  static PlanRecord plan(Engine& engine, std::int64_t batch, std::int64_t seq) {
    TestTensor input({batch, seq, 2}), output({batch, seq, 2});
    input.fill(1.5);
    const auto before = output.storage();
    const PlanRecord record = engine.plan({input.const_view(), {}, output.view(), nullptr});
    EXPECT_EQ(output.storage(), before) << "planning wrote the caller's output";
    return record;
  }
  static Problem problem(std::int64_t batch, std::int64_t seq) { return {.batch = batch, .seq = seq, .config = kTiny}; }

  template <typename Action>
  static Error error_of(Action action) {
    try {
      action();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no error";
    return Error(ErrorKind::internal, "");
  }

  FakeWorld world;
  EngineOptions options;
};

}  // namespace gnomon::test
