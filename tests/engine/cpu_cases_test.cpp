// What users of comparable systems ran into, on the real CPU backend against the float64 oracle. The names follow the
// kinds: masks, shapes and memory, numbers, weights and processes, calls.
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "cpu/cpu_info.hpp"
#include "engine/cpu_case.hpp"
#include "plan/memory_need.hpp"

namespace gnomon::test {
namespace {

using ::testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

StackConfig small(bool causal) { return {.layers = 2, .d_model = 32, .n_heads = 4, .d_ff = 64, .causal = causal}; }
Problem problem(std::int64_t batch, std::int64_t seq, StackConfig config) {
  return {.batch = batch, .seq = seq, .config = config};
}

// ---- masks

TEST(CpuMasks, EveryKindOfPaddingInBothDirections) {
  for (const bool causal : {false, true}) {
    for (const MaskKind kind : kMaskKinds) {
      for (const std::uint64_t seed : {1, 2})
        expect_right({.problem = problem(3, 10, small(causal)), .mask = kind, .seed = seed});
    }
  }
}

TEST(CpuMasks, TheSmallStackOfTheField) {  // d=128, 4 heads, FFN 512: the shape the cases were met on
  for (const bool causal : {false, true}) {
    const StackConfig config{.layers = 2, .causal = causal};
    expect_right({.problem = problem(3, 10, config), .mask = MaskKind::one_empty});
    expect_right({.problem = problem(2, 6, config), .mask = MaskKind::left_padded});
  }
}

TEST(CpuMasks, ValidRowsEqualTheSequenceWithoutItsPadding) {
  for (const bool causal : {false, true}) {
    for (const MaskKind kind : {MaskKind::left_padded, MaskKind::right_padded, MaskKind::holes}) {
      Caller padded({.problem = problem(1, 12, small(causal)), .mask = kind, .seed = 5});
      std::vector<std::int64_t> valid;
      for (std::int64_t s = 0; s < 12; ++s) {
        if (padded.mask()->valid(0, s)) valid.push_back(s);
      }
      ASSERT_FALSE(valid.empty());
      Engine engine(padded.weights(), quick_options());
      padded.expect_right_answer(engine);
      const auto n = static_cast<std::int64_t>(valid.size());
      TestTensor input({1, n, 32}), output({1, n, 32});
      std::vector<double> expected;
      for (std::int64_t t = 0; t < n; ++t) {
        for (std::int64_t i = 0; i < 32; ++i) {
          const std::int64_t s = valid[static_cast<std::size_t>(t)];
          set_value(input.view(), 0, t, i, value_at(padded.input().const_view(), 0, s, i));
          expected.push_back(value_at(padded.output().const_view(), 0, s, i));
        }
      }
      engine.forward({input.const_view(), {}, output.view(), nullptr});
      const Verdict verdict = judge(expected, output.const_view(), {});
      EXPECT_LE(verdict.worst, 1) << to_string(verdict);
    }
  }
}

TEST(CpuMasks, WhatPaddedTokensHoldNeverReachesValidRows) {
  for (const bool causal : {false, true}) {
    for (const double poison : {kNaN, kInf, 1e30}) {
      for (const MaskKind kind : {MaskKind::left_padded, MaskKind::right_padded, MaskKind::holes}) {
        Caller caller({.problem = problem(3, 9, small(causal)), .mask = kind, .seed = 3});
        Engine engine(caller.weights(), quick_options());
        caller.expect_right_answer(engine);
        const auto clean = caller.expected();
        for (std::int64_t b = 0; b < 3; ++b) {
          for (std::int64_t s = 0; s < 9; ++s) {
            if (caller.mask()->valid(b, s)) continue;
            for (std::int64_t i = 0; i < 32; ++i) set_value(caller.input().view(), b, s, i, poison);
          }
        }
        engine.forward(caller.call());
        const auto values = caller.output().values();
        for (std::size_t n = 0; n < values.size(); ++n) {
          const auto row = static_cast<std::int64_t>(n) / 32;
          if (!caller.mask()->valid(row / 9, row % 9)) continue;
          ASSERT_LE(std::fabs(values[n] - clean[n]), 0.002 + 0.02 * std::fabs(clean[n]))
              << poison << " reached row " << row;
        }
      }
    }
  }
}

TEST(CpuMasks, NanInAValidTokenStaysInItsSequence) {
  for (const bool causal : {false, true}) {
    for (const auto mask : {std::optional<MaskKind>(), std::optional(MaskKind::all_true)}) {
      Caller caller({.problem = problem(3, 8, small(causal)), .mask = mask});
      Engine engine(caller.weights(), quick_options());
      caller.expect_right_answer(engine);
      set_value(caller.input().view(), 1, 4, 0, kNaN);
      caller.work_out();
      caller.expect_right_answer(engine);  // NaN exactly where the oracle has it
      Engine fresh(caller.weights(), quick_options());
      caller.expect_right_answer(fresh);  // planned on it
    }
  }
}

TEST(CpuMasks, AMaskOfAnotherShapeIsRefused) {
  Caller caller({.problem = problem(3, 8, small(true)), .mask = MaskKind::all_true});
  Engine engine(caller.weights(), quick_options());
  Call call = caller.call();
  std::swap(call.mask->shape[0], call.mask->shape[1]);
  try {
    engine.forward(call);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::caller);
    EXPECT_THAT(error.what(), HasSubstr("[3, 8]"));
  }
}

TEST(CpuMasks, AllTrueIsExactlyNoMask) {
  auto options = quick_options();
  options.effort = Effort::estimate;  // the same choices for both: nothing is timed
  for (const bool causal : {false, true}) {
    Caller with({.problem = problem(3, 10, small(causal)), .mask = MaskKind::all_true});
    Caller without({.problem = problem(3, 10, small(causal))});
    Engine engine(with.weights(), options);
    Call call = with.call();
    with.expect_right_answer(engine);
    call.mask.reset();
    call.output = without.output().view();
    engine.forward(call);
    EXPECT_EQ(with.output().storage(), without.output().storage());
  }
}

// ---- shapes and memory

TEST(CpuShapes, ShortSequences) {
  const StackConfig narrow{.layers = 1, .d_model = 16, .n_heads = 2, .d_ff = 16, .causal = true};
  for (const std::int64_t seq : {1, 2, 3}) {
    for (const std::int64_t batch : {1, 7}) {
      expect_right({.problem = problem(batch, seq, small(true))});
      expect_right({.problem = problem(batch, seq, small(false)), .mask = MaskKind::holes});
    }
  }
  expect_right({.problem = problem(65536, 1, narrow)});
}

// Seven different sequences over and over: each answer is known from a small batch.
void expect_right_for_huge_batch(std::int64_t batch, Engine& engine, const Weights& weights) {
  constexpr std::int64_t kKinds = 7, kSeq = 4;
  const std::int64_t d = weights.config().d_model;
  Rng rng(9);
  TestTensor few({kKinds, kSeq, d});
  few.fill_normal(rng);
  const auto expected = oracle(weights, few.const_view(), {});
  const auto values = few.values();
  std::vector<float> input(static_cast<std::size_t>(batch * kSeq * d)), output(input.size(), std::nanf(""));
  for (std::size_t n = 0; n < input.size(); ++n) input[n] = static_cast<float>(values[n % values.size()]);
  engine.forward({ConstTensorView::contiguous(input.data(), DType::f32, {batch, kSeq, d}),
                  {},
                  TensorView::contiguous(output.data(), DType::f32, {batch, kSeq, d}),
                  nullptr});
  std::size_t wrong = 0;
  for (std::size_t n = 0; n < output.size(); ++n) {
    const double r = expected[n % expected.size()];
    wrong += !(std::fabs(output[n] - r) <= std::max(0.002, 0.02 * std::fabs(r)));
  }
  EXPECT_EQ(wrong, 0u) << "of " << output.size() << " at B=" << batch;
}

TEST(CpuShapes, BatchesAroundTwoToTheSixteenAndFarBeyond) {
  const StackConfig config{.layers = 1, .d_model = 64, .n_heads = 4, .d_ff = 64, .causal = true};
  const Weights weights = Weights::random(config, 1);
  Engine engine(weights, quick_options());
  for (const std::int64_t batch : {65535, 65536, 65537}) expect_right_for_huge_batch(batch, engine, weights);
  EXPECT_EQ(engine.stats().problems_planned, 1) << "the neighbours borrow";
#if !defined(__SANITIZE_ADDRESS__)
  auto options = quick_options();
  options.effort = Effort::estimate;
  Engine large(weights, options);
  expect_right_for_huge_batch(300'000, large, weights);
#endif
}

TEST(CpuShapes, OddHeadSizesAndWidths) {
  for (const std::int64_t head : {4, 5, 13, 20, 26, 48, 72, 80, 160, 320}) {
    const std::int64_t heads = head > 100 ? 1 : 2;
    for (const bool causal : {false, true}) {
      expect_right({.problem = problem(
                        2, 7, {.layers = 1, .d_model = head * heads, .n_heads = heads, .d_ff = 13, .causal = causal})});
    }
  }
  expect_right({.problem = problem(3, 5, {.layers = 2, .d_model = 7, .n_heads = 7, .d_ff = 13})});
  expect_right({.problem = problem(3, 5, {.layers = 2, .d_model = 1, .n_heads = 1, .d_ff = 1})});
  EXPECT_THROW(Weights::random({.d_model = 10, .n_heads = 3}, 1), Error);
}

TEST(CpuShapes, EveryConfiguration) {
  for (const NormPlacement norm : {NormPlacement::post, NormPlacement::pre}) {
    for (const Activation activation : {Activation::gelu_erf, Activation::gelu_tanh, Activation::relu}) {
      for (int bits = 0; bits < 8; ++bits) {
        const StackConfig config{.layers = 2,
                                 .d_model = 24,
                                 .n_heads = 3,
                                 .d_ff = 40,
                                 .norm = norm,
                                 .final_norm = (bits & 1) != 0,
                                 .activation = activation,
                                 .causal = (bits & 2) != 0,
                                 .bias = (bits & 4) != 0,
                                 .eps = 1e-6};
        auto options = quick_options();
        options.budget_seconds = 0.01;
        expect_right({.problem = problem(2, 9, config)}, options);
      }
    }
  }
}

TEST(CpuShapes, EmptyInputsTouchNothing) {
  Engine engine(Weights::random(small(true), 1), quick_options());
  for (const auto& shape : {std::array<std::int64_t, 3>{0, 10, 32}, {3, 0, 32}, {0, 0, 32}}) {
    engine.forward({ConstTensorView::contiguous(nullptr, DType::f32, shape),
                    {},
                    TensorView::contiguous(nullptr, DType::f32, shape),
                    nullptr});
  }
  EXPECT_EQ(engine.stats().problems_planned, 0);
}

TEST(CpuShapes, EveryLayoutOfInputAndOutput) {
  for (const Layout layout : kOwnLayouts) {
    expect_right({.problem = problem(3, 6, small(true)), .input = layout});
    expect_right({.problem = problem(3, 6, small(false)), .mask = MaskKind::holes, .output = layout});
    Problem inplace = problem(3, 6, small(true));
    inplace.inplace = true;
    expect_right({.problem = inplace, .output = layout});
  }
  expect_right({.problem = problem(3, 6, small(true)), .input = Layout::broadcast});
}

TEST(CpuShapes, SixteenBitInputsAndOutputs) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const Layout layout : {Layout::contiguous, Layout::every_other_column}) {
      Problem p = problem(3, 11, small(true));
      p.dtype = dtype;
      expect_right({.problem = p, .input = layout, .output = layout});
      p.inplace = true;
      expect_right({.problem = p, .mask = MaskKind::left_padded, .output = layout});
    }
  }
}

TEST(CpuShapes, AMemoryLimitIsKeptOrRefusedWithNumbers) {
  const CpuCase c{.problem = problem(64, 64, small(true))};
  auto options = quick_options();
  options.budget_seconds = 0.3;
  const std::int64_t beside = tensor_bytes(c.problem) + 2 * weight_bytes(c.problem.config, 4);
  options.constraints.memory_limit = beside + (1 << 20);
  expect_right(c, options);
  Caller caller(c);
  Engine engine(caller.weights(), options);
  caller.expect_right_answer(engine);
  EXPECT_LE(engine.stats().scratch_bytes, 1 << 20);
  options.constraints.memory_limit = 16;
  Engine hopeless(caller.weights(), options);
  try {
    hopeless.forward(caller.call());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), ErrorKind::internal);
    EXPECT_THAT(error.what(), HasSubstr("memory_limit"));
  }
}

TEST(CpuShapes, ManyLengthsInARow) {
  auto options = quick_options();
  options.max_plans = 4;
  const Weights weights = Weights::random({.layers = 1, .d_model = 8, .n_heads = 2, .d_ff = 8}, 1);
  Engine engine(weights, options);
  for (std::int64_t s = 1; s <= 300; ++s) {
    Caller caller({.problem = problem(1, s, weights.config())}, weights);
    caller.expect_right_answer(engine);
  }
  EXPECT_EQ(engine.stats().plans_evicted, 296);
  EXPECT_LT(engine.stats().problems_planned, 12);
}

// ---- numbers

TEST(CpuNumbers, InputsThatGrowStayInContract) {
  for (const bool causal : {false, true}) {
    const Weights weights = Weights::random({.layers = 2, .causal = causal}, 1);
    Engine engine(weights, quick_options());
    for (const double scale : {1.0, 10.0, 100.0, 3e4, 1.0}) {
      Caller caller({.problem = problem(2, 16, weights.config()), .scale = scale}, weights);
      caller.expect_right_answer(engine);
    }
    EXPECT_EQ(engine.stats().problems_planned, 1);
  }
}

// A copy of `weights` with one tensor's values changed.
class ChangedWeights {
 public:
  template <typename Change>
  ChangedWeights(const Weights& weights, Change change) {
    for (NamedTensor tensor : weights.named()) {
      std::int64_t count = 1;
      for (const std::int64_t size : tensor.shape) count *= size;
      const auto* values = static_cast<const float*>(tensor.data);
      auto& copy = values_.emplace_back(std::make_unique<std::vector<float>>(values, values + count));
      change(tensor.name, *copy);
      tensor.data = copy->data();
      tensors_.push_back(tensor);
    }
    config_ = weights.config();
  }
  Weights get() const { return Weights::from_tensors(config_, tensors_); }

 private:
  StackConfig config_;
  std::vector<std::unique_ptr<std::vector<float>>> values_;
  std::vector<NamedTensor> tensors_;
};

TEST(CpuNumbers, OneHugeBias) {
  const StackConfig config{.layers = 2};
  for (const char* name : {"layers.0.fc1.bias", "layers.0.attn.out_proj.bias", "layers.1.fc2.bias"}) {
    const ChangedWeights changed(Weights::random(config, 1),
                                 [&](const std::string& tensor, std::vector<float>& values) {
                                   if (tensor == name) values[3] = 7e4f;
                                 });
    SCOPED_TRACE(name);
    Caller caller({.problem = problem(2, 8, config)}, changed.get());
    Engine engine(caller.weights(), quick_options());
    caller.expect_right_and_repeatable(engine);
  }
}

TEST(CpuNumbers, Fp32OnlyAdmitsNoApproximation) {
  auto options = quick_options();
  options.budget_seconds = 0.3;
  options.constraints.fp32_only = true;
  Caller caller({.problem = problem(4, 32, small(true))});
  Engine engine(caller.weights(), options);
  caller.expect_right_answer(engine);
  const auto records = engine.explain_all();
  ASSERT_EQ(records.size(), 1u);
  for (const auto& report : records[0].candidates) {
    EXPECT_TRUE(report.approximations.empty() || report.outcome == Outcome::refused) << report.candidate.to_string();
  }
}

TEST(CpuNumbers, APrecisionThatWinsIsNamedAndInContract) {
  if (!cpu::cpu_info().bf16) GTEST_SKIP() << "this CPU has no bf16 products";
  auto options = quick_options();
  options.constraints.forced = {{"precision", "bf16_qk"}};
  const CpuCase c{.problem = problem(4, 32, small(true))};
  Caller caller(c);
  Engine engine(caller.weights(), options);
  caller.expect_right_answer(engine);
  EXPECT_THAT(explain_text(*engine.explain(problem_of(c))), HasSubstr("bf16"));
  for (const double scale : {10.0, 100.0, 3e4}) {  // beyond the range it was verified on
    Caller larger({.problem = c.problem, .scale = scale});
    larger.expect_right_answer(engine);
  }
  EXPECT_GT(engine.stats().range_fallbacks, 0);
}

// A pre-norm stack adds the same error to a smaller answer; a post-norm stack errs less on less and is not refused.
TEST(CpuNumbers, AnInputSmallerThanAPlanWasJudgedOn) {
  if (!cpu::cpu_info().bf16) GTEST_SKIP() << "this CPU has no bf16 products";
  auto options = quick_options();
  options.constraints.forced = {{"precision", "bf16_qk"}};
  // So that the range is the whole call's, not a part's, however busy the machine is.
  options.effort = Effort::estimate;
  options.budget_seconds = options.total_budget_seconds = 1e3;
  struct Row {
    const char* problem;
    bool falls_back;
  };
  for (const Row& row : {Row{"b2 s32 d64 h4 l2 f128 pre", true}, Row{"b2 s32 d64 h4 l2 f128 pre finalnorm", true},
                         Row{"b2 s32 d64 h4 l2 f128 post", false}}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const CpuCase c{.problem = parse_problem(row.problem), .seed = seed};
      Caller usual(c);
      Engine engine(usual.weights(), options);
      usual.expect_right_answer(engine);
      EXPECT_EQ(engine.stats().range_fallbacks, 0);
      for (const double scale : {0.1, 0.01, 1e-3}) {
        const auto before = engine.stats().range_fallbacks;
        Caller smaller({.problem = c.problem, .scale = scale, .seed = seed});
        smaller.expect_right_answer(engine);
        EXPECT_EQ(engine.stats().range_fallbacks > before, row.falls_back) << row.problem << " scale " << scale;
      }
    }
  }
}

// ---- weights and stores

std::vector<const char*> precisions() {
  if (!cpu::cpu_info().bf16) return {"fp32"};
  return {"fp32", "bf16_qk"};
}

TEST(CpuWeights, ARefreshAnswersWithTheNewWeights) {
  for (const char* precision : precisions()) {
    auto options = quick_options();
    options.constraints.forced = {{"precision", precision}};
    const CpuCase c{.problem = problem(3, 8, small(true))};
    Caller before(c), after(c, Weights::random(c.problem.config, 99));
    Engine engine(before.weights(), options);
    before.expect_right_answer(engine);
    engine.refresh(after.weights());
    after.expect_right_answer(engine);
    EXPECT_EQ(engine.stats().problems_planned, 1);
  }
}

TEST(CpuWeights, TwoModelsOfOneStructureShareAFolder) {
  const TemporaryDirectory folder;
  auto options = quick_options();
  options.plan_directory = folder.path();
  const CpuCase c{.problem = problem(3, 8, small(true))};
  const ChangedWeights larger(Weights::random(c.problem.config, 2),
                              [](const std::string& name, std::vector<float>& values) {
                                if (name.find("norm") == std::string::npos) {
                                  for (float& value : values) value *= 50;
                                }
                              });
  for (const char* precision : precisions()) {
    options.constraints.forced = {{"precision", precision}};
    Caller one(c), two(c, larger.get());
    Engine first(one.weights(), options);
    one.expect_right_and_repeatable(first);
    try {
      Engine second(two.weights(), options);
      two.expect_right_and_repeatable(second);
      EXPECT_EQ(second.stats().check_runs > 0, std::string(precision) != "fp32");
    } catch (const Error& error) {  // bf16 forced, and out of contract with these weights
      EXPECT_STRNE(precision, "fp32") << error.what();
    }
    Engine again(one.weights(), options);
    one.expect_right_and_repeatable(again);
  }
}

// ---- calls

TEST(CpuCalls, AnswersBelongToTheCaller) {
  const Weights weights = Weights::random(small(true), 1);
  const Problem p = problem(3, 8, small(true));
  Caller one({.problem = p, .seed = 1}, weights), two({.problem = p, .seed = 2}, weights);
  TestTensor twice({3, 8, 32});
  {
    Engine engine(weights, quick_options());
    one.expect_right_answer(engine);
    const auto y1 = one.output().storage();
    two.expect_right_answer(engine);
    EXPECT_EQ(one.output().storage(), y1);
    engine.forward({one.output().const_view(), {}, twice.view(), nullptr});
    EXPECT_EQ(one.output().storage(), y1);
  }
  const Verdict verdict = judge(oracle(weights, one.output().const_view(), {}), twice.const_view(), {});
  EXPECT_LE(verdict.worst, 1) << to_string(verdict);
}

TEST(CpuCalls, AHundredAlternationsOfStorageContentsAndMask) {
  const Weights weights = Weights::random({.layers = 1, .d_model = 16, .n_heads = 2, .d_ff = 16, .causal = false}, 1);
  const Problem p = problem(2, 6, weights.config());
  Engine engine(weights, quick_options());
  Rng rng(4);
  Caller kept({.problem = p, .mask = MaskKind::holes}, weights);
  for (std::uint64_t n = 0; n < 100; ++n) {
    kept.input().fill_normal(rng);
    kept.mask()->set(static_cast<std::int64_t>(n % 2), static_cast<std::int64_t>(n % 6), n % 4 < 2);
    kept.work_out();
    kept.expect_right_answer(engine);
    Caller fresh({.problem = p, .mask = kMaskKinds[n % 7], .seed = n}, weights);
    fresh.expect_right_answer(engine);
  }
  EXPECT_EQ(engine.stats().problems_planned, 1);
}

TEST(CpuCalls, ADeviceThatIsNotThere) {
  auto options = quick_options();
  for (const auto& [device, kind] : {std::pair{"cuda:99", ErrorKind::environment}, {"tpu", ErrorKind::caller}}) {
    options.device = device;
    try {
      Engine engine(Weights::random(small(true), 1), options);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      EXPECT_THAT(error.what(), HasSubstr(device));
    }
  }
}

}  // namespace
}  // namespace gnomon::test
