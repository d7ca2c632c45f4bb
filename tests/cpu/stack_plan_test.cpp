// StackPlan under every combination of choices, against the float64 oracle.
#include "cpu/stack_plan.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "cpu/cpu_info.hpp"
#include "cpu/floats.hpp"
#include "cpu/plan_case.hpp"
#include "cpu/vector_test.hpp"

namespace gnomon::test {
namespace {

using cpu::Choices;
using cpu::Partition;
using cpu::Precision;
using cpu::StackPlan;

class StackPlanTest : public VectorTest {
 protected:
  void SetUp() override {
    VectorTest::SetUp();
    if (!IsSkipped()) rng_.seed(test_seed());
  }
  StackPlan plan(PlanBench& bench, const Choices& choices) {
    return StackPlan(bench.problem(), choices, bench.weights(), bench.packs(), arena_);
  }
  void expect_valid_rows(const PlanBench& bench) {
    bench.expect_right_where(tight_contract(Precision::fp32),
                             [&bench](std::int64_t b, std::int64_t s) { return bench.mask().valid(b, s); });
  }
  // Right, and the same bits on a second run.
  void expect_right(const PlanCase& c) {
    SCOPED_TRACE(to_string(c));
    PlanBench bench(c, rng_);
    StackPlan plan(bench.problem(), c.choices, bench.weights(), bench.packs(), arena_);
    const auto first = bench.run(plan);
    bench.expect_right(tight_contract(c.choices.precision));
    EXPECT_EQ(first, bench.run(plan)) << "a second run gave other bits";
    EXPECT_EQ(plan.range_fallbacks(), 0);
  }

  Rng rng_{0};
  cpu::Arena arena_;
};

struct Way {
  Partition partition;
  bool graph;
};
constexpr Way kWays[] = {{Partition::sequence, true},
                         {Partition::row, true},
                         {Partition::row, false},
                         {Partition::head, true},
                         {Partition::head, false}};

std::vector<Precision> precisions() {
  if (!cpu::cpu_info().bf16) return {Precision::fp32};
  return {Precision::fp32, Precision::bf16_qk, Precision::bf16};
}

// How the rows are cut: whole, one by one, in pieces that leave remainders in the slice, the block and the last slice.
TEST_F(StackPlanTest, EveryCutOfTheRows) {
  const Problem problem = parse_problem("b5 s7 d24 h3 l2 f40 causal");
  for (const Way& way : kWays) {
    for (const std::int64_t slices : {0, 1, 2, 3, 4, 9}) {
      for (const std::int64_t chunk : {0, 1, 5, 8, 100}) {
        for (const int threads : {1, 3}) {
          if (threads == 1 && chunk == 1) continue;
          expect_right({.problem = problem,
                        .choices = {.graph = way.graph,
                                    .partition = way.partition,
                                    .threads = threads,
                                    .slices = slices,
                                    .chunk = chunk}});
          if (HasFailure()) return;
        }
      }
    }
  }
}

// All settings of the operators' switches, on a stack of each norm placement.
TEST_F(StackPlanTest, EverySwitch) {
  for (const char* text : {"b2 s9 d16 h2 l2 f24 causal", "b2 s9 d16 h2 l2 f24 causal pre finalnorm",
                           "b2 s9 d16 h2 l2 f24 bi pre nobias", "b2 s9 d16 h2 l2 f24 bi finalnorm nobias"}) {
    const Problem problem = parse_problem(text);
    for (int bits = 0; bits < 64; ++bits) {
      const auto on = [bits](int bit) { return (bits >> bit & 1) != 0; };
      Choices c{.fused_attention = on(0),
                .causal_skip = on(0) && on(1) && problem.config.causal,
                .mask_elision = on(0) && on(2),
                .fused_qkv = on(3),
                .fused_norm = on(4),
                .gemm_gelu = on(5),
                .threads = 2};
      if (!on(0) && (on(1) || on(2))) continue;
      const Way& way = kWays[rng_() % std::size(kWays)];
      c.partition = way.partition;
      c.graph = way.graph;
      expect_right(
          {.problem = problem, .choices = c, .mask = bits % 2 ? std::optional(MaskKind::holes) : std::nullopt});
      if (HasFailure()) return;
    }
  }
}

TEST_F(StackPlanTest, EveryMaskOnEveryWay) {
  const Problem problem = parse_problem("b4 s11 d20 h5 l2 f24 causal");
  for (const MaskKind mask : kMaskKinds) {
    for (const Way& way : kWays) {
      for (const bool causal : {true, false}) {
        PlanCase c{.problem = problem,
                   .choices = {.causal_skip = causal,
                               .mask_elision = rng_() % 2 == 0,
                               .graph = way.graph,
                               .partition = way.partition,
                               .threads = 2,
                               .slices = 3},
                   .mask = mask,
                   .strided_mask = rng_() % 2 == 0};
        c.problem.config.causal = causal;
        expect_right(c);
        c.choices.mask_elision = !c.choices.mask_elision;
        expect_right(c);
        c.choices.fused_attention = c.choices.mask_elision = c.choices.causal_skip = false;
        expect_right(c);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(StackPlanTest, EveryPrecisionDTypeLayoutAndPlace) {
  for (const Precision precision : precisions()) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const Layout layout : kOwnLayouts) {
        for (const bool inplace : {false, true}) {
          for (const char* text :
               {"b3 s6 d16 h2 l1 f24", "b3 s6 d16 h2 l1 f24 pre", "b3 s6 d16 h2 l1 f24 pre finalnorm"}) {
            PlanCase c{.problem = parse_problem(text),
                       .input = kOwnLayouts[rng_() % std::size(kOwnLayouts)],
                       .output = layout};
            const Way& way = kWays[rng_() % std::size(kWays)];
            c.choices = {.precision = precision,
                         .graph = way.graph,
                         .partition = way.partition,
                         .threads = 2,
                         .slices = static_cast<std::int64_t>(rng_() % 3),
                         .chunk = static_cast<std::int64_t>(rng_() % 8)};
            c.problem.dtype = dtype;
            c.problem.inplace = inplace;
            expect_right(c);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(StackPlanTest, OddHeadSizesActivationsAndWidths) {
  for (const char* text : {"b2 s3 d7 h7 l1 f13", "b1 s1 d4 h1 l3 f1", "b7 s1 d26 h2 f9 relu",
                           "b1 s2 d13 h1 f5 gelu_tanh pre", "b2 s3 d1 h1 f1", "b2 s3 d40 h2 l1 f13 gelu_tanh",
                           "b1 s5 d160 h2 l1 f16 relu bi", "b2 s50 d72 h1 l1 f8 eps=1e-12"}) {
    for (const bool gemm_gelu : {true, false}) {
      for (const Way& way : kWays) {
        PlanCase c{.problem = parse_problem(text)};
        c.choices = {.causal_skip = c.problem.config.causal,
                     .gemm_gelu = gemm_gelu,
                     .graph = way.graph,
                     .partition = way.partition,
                     .threads = 3};
        expect_right(c);
        if (HasFailure()) return;
      }
    }
  }
}

// More workers than rows, heads or slices.
TEST_F(StackPlanTest, IdleWorkers) {
  for (const Way& way : kWays) {
    expect_right({.problem = parse_problem("b1 s2 d8 h1 l2 f8"),
                  .choices = {.graph = way.graph, .partition = way.partition, .threads = 6}});
  }
}

template <typename T, std::size_t N>
const T& any_of(const T (&values)[N], Rng& rng) {
  return values[rng() % N];
}

TEST_F(StackPlanTest, RandomProblemsUnderRandomChoices) {
  const int count = test_count(150);
  const auto below = [this](std::int64_t n) {
    return static_cast<std::int64_t>(rng_() % static_cast<std::uint64_t>(n));
  };
  const auto coin = [&] { return below(2) == 0; };
  const std::vector<Precision> precision = precisions();
  for (int i = 0; i < count && !HasFailure(); ++i) {
    PlanCase c;
    StackConfig& s = c.problem.config;
    c.problem.batch = 1 + below(6);
    c.problem.seq = coin() ? 1 + below(12) : 1 + below(60);
    s = {.layers = 1 + below(3),
         .d_model = 0,
         .n_heads = 1 + below(4),
         .d_ff = 1 + below(50),
         .norm = coin() ? NormPlacement::pre : NormPlacement::post,
         .final_norm = coin(),
         .activation = static_cast<Activation>(below(3)),
         .causal = coin(),
         .bias = coin()};
    // A norm of very few features is nearly a sign: no tolerance fits that.
    s.d_model = s.n_heads * std::max((15 + s.n_heads) / s.n_heads, 2 + below(20));
    c.problem.dtype = static_cast<DType>(below(3));
    c.problem.inplace = coin();
    if (coin()) c.mask = any_of(kMaskKinds, rng_);
    c.input = any_of(kOwnLayouts, rng_);
    c.output = coin() ? Layout::contiguous : any_of(kOwnLayouts, rng_);
    c.strided_mask = coin();
    const Way& way = any_of(kWays, rng_);
    const bool fused = below(4) != 0;
    c.choices = {.precision = precision[static_cast<std::size_t>(below(static_cast<std::int64_t>(precision.size())))],
                 .fused_attention = fused,
                 .causal_skip = fused && s.causal && coin(),
                 .mask_elision = fused && coin(),
                 .fused_qkv = coin(),
                 .fused_norm = coin(),
                 .gemm_gelu = coin(),
                 .graph = way.graph,
                 .partition = way.partition,
                 .threads = static_cast<int>(1 + below(4)),
                 .slices = below(4),
                 .chunk = coin() ? 0 : 1 + below(40)};
    expect_right(c);
  }
}

// Padded inputs, even NaN, never change valid rows; their own rows are NaN as in the reference.
TEST_F(StackPlanTest, PaddingIsNeverSeen) {
  for (const MaskKind mask : {MaskKind::right_padded, MaskKind::left_padded, MaskKind::holes, MaskKind::one_empty}) {
    for (const double value :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e30}) {
      for (const Way& way : kWays) {
        for (const bool elide : {true, false}) {
          PlanCase c{.problem = parse_problem("b3 s10 d16 h2 l2 f24 causal"),
                     .choices = {.mask_elision = elide, .graph = way.graph, .partition = way.partition, .threads = 2},
                     .mask = mask};
          SCOPED_TRACE(to_string(c) + fmt::format(" padding={}", value));
          PlanBench bench(c, rng_);
          bench.poison_padding(value);
          StackPlan fused = plan(bench, c.choices);
          bench.run(fused);
          // 1e30 squared is an infinity in fp32: such rows are their own business, the valid ones are judged.
          expect_valid_rows(bench);
          c.choices.fused_attention = c.choices.mask_elision = c.choices.causal_skip = false;
          StackPlan stored = plan(bench, c.choices);
          bench.run(stored);
          expect_valid_rows(bench);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// NaN in a valid token: the rows that see it are NaN, the others are right.
TEST_F(StackPlanTest, NotANumberReachesOnlyWhatSeesIt) {
  for (const Way& way : kWays) {
    for (const bool skip : {true, false}) {
      for (const bool fused : {true, false}) {
        for (const Precision precision : precisions()) {
          if (!fused && skip) continue;
          PlanCase c{.problem = parse_problem("b3 s10 d16 h2 l2 f24 causal"),
                     .choices = {.precision = precision,
                                 .fused_attention = fused,
                                 .causal_skip = skip,
                                 .mask_elision = fused,
                                 .graph = way.graph,
                                 .partition = way.partition,
                                 .threads = 2}};
          SCOPED_TRACE(to_string(c));
          PlanBench bench(c, rng_);
          bench.set_input(1, 6, 3, std::numeric_limits<double>::quiet_NaN());
          StackPlan p = plan(bench, c.choices);
          bench.run(p);
          bench.expect_right(tight_contract(Precision::fp32));
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Reduced precision.

class ReducedPrecisionTest : public StackPlanTest {
 protected:
  void SetUp() override {
    StackPlanTest::SetUp();
    if (!IsSkipped() && !cpu::cpu_info().bf16) GTEST_SKIP() << "this CPU has no bf16 products";
  }
  void expect_the_fp32_answer(PlanBench& bench, StackPlan& reduced, Choices choices, std::int64_t fallbacks) {
    const auto answer = bench.run(reduced);
    EXPECT_EQ(reduced.range_fallbacks(), fallbacks);
    choices.precision = Precision::fp32;
    StackPlan precise = plan(bench, choices);
    EXPECT_EQ(answer, bench.run(precise)) << "not the bits of the fp32 plan";
  }
};

std::vector<PlanCase> reduced_cases() {
  std::vector<PlanCase> cases;
  for (const Precision precision : {Precision::bf16, Precision::bf16_qk}) {
    for (const Way& way : kWays) {
      for (const bool inplace : {false, true}) {
        for (const char* text : {"b4 s6 d16 h2 l2 f24", "b4 s6 d16 h2 l2 f24 pre"}) {
          PlanCase c{
              .problem = parse_problem(text),
              .choices = {
                  .precision = precision, .graph = way.graph, .partition = way.partition, .threads = 2, .slices = 2}};
          c.problem.inplace = inplace;
          cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

TEST_F(ReducedPrecisionTest, DiffersFromFp32WithinItsRange) {
  for (const PlanCase& c : reduced_cases()) {
    SCOPED_TRACE(to_string(c));
    PlanBench bench(c, rng_);
    StackPlan reduced = plan(bench, c.choices);
    reduced.set_verified_range({0, 100});
    const auto answer = bench.run(reduced);
    EXPECT_EQ(reduced.range_fallbacks(), 0);
    Choices precise = c.choices;
    precise.precision = Precision::fp32;
    StackPlan fp32 = plan(bench, precise);
    EXPECT_NE(answer, bench.run(fp32)) << "reduced precision was not used";
  }
}

TEST_F(ReducedPrecisionTest, OutsideTheVerifiedRangeTheFp32PlanAnswers) {
  for (const PlanCase& c : reduced_cases()) {
    SCOPED_TRACE(to_string(c));
    PlanBench bench(c, rng_);
    StackPlan reduced = plan(bench, c.choices);
    reduced.set_verified_range({0, 1e-3});
    expect_the_fp32_answer(bench, reduced, c.choices, /*fallbacks=*/2);  // one for each slice
    reduced.set_verified_range({0, 1e3});
    bench.run(reduced);
    EXPECT_EQ(reduced.range_fallbacks(), 2) << "inside the range again";
  }
}

TEST_F(ReducedPrecisionTest, ARangeIsInclusive) {
  PlanCase c = reduced_cases().front();
  PlanBench bench(c, rng_);
  bench.input().fill(0.5);
  for (std::int64_t f = 0; f < 16; ++f) bench.set_input(0, 0, f, -3);  // a row of size 3, exactly
  StackPlan reduced = plan(bench, c.choices);
  reduced.set_verified_range({0.5, 3});
  bench.run(reduced);
  EXPECT_EQ(reduced.range_fallbacks(), 0);
  for (std::int64_t f = 0; f < 16; ++f) bench.set_input(3, 5, f, 3.0000002384185791);
  bench.run(reduced);
  EXPECT_EQ(reduced.range_fallbacks(), 1) << "the second slice alone";
  for (std::int64_t f = 0; f < 16; ++f) bench.set_input(3, 5, f, 0.49999997);
  bench.run(reduced);
  EXPECT_EQ(reduced.range_fallbacks(), 2) << "too small";
}

TEST_F(ReducedPrecisionTest, PaddingOfZerosIsNotTooSmall) {
  PlanCase c = reduced_cases().front();
  c.mask = MaskKind::right_padded;
  PlanBench bench(c, rng_);
  bench.input().fill(1);
  bench.poison_padding(0);
  StackPlan reduced = plan(bench, c.choices);
  reduced.set_verified_range({0.5, 3});
  bench.run(reduced);
  EXPECT_EQ(reduced.range_fallbacks(), 0);
  for (std::int64_t f = 0; f < 16; ++f) bench.set_input(0, 0, f, 0);  // a valid token
  bench.run(reduced);
  EXPECT_EQ(reduced.range_fallbacks(), 1);
}

// A pre-norm stack's residual stream is the input itself: an infinity in it makes an output that is not finite.
TEST_F(ReducedPrecisionTest, AnOutputThatIsNotFiniteIsAnsweredInFp32) {
  for (const PlanCase& c : reduced_cases()) {
    SCOPED_TRACE(to_string(c));
    PlanBench bench(c, rng_);
    bench.set_input(3, 5, 2, std::numeric_limits<double>::infinity());
    StackPlan reduced = plan(bench, c.choices);
    const auto answer = bench.run(reduced);
    EXPECT_EQ(reduced.range_fallbacks(), 1) << "the slice that holds it";
    // The other slice is in bf16, this one in fp32: judged where it is precise.
    for (std::int64_t i = 0; i < 2 * 6 * 16; ++i) {
      const std::int64_t b = 2 + i / 96, s = i / 16 % 6, f = i % 16;
      const double want = bench.expected()[static_cast<std::size_t>(192 + i)];
      const double got = value_at(bench.output().const_view(), b, s, f);
      EXPECT_TRUE(near(static_cast<float>(got), want, 2e-4 * (1 + std::fabs(want))))
          << b << "," << s << "," << f << ": " << got;
    }
    if (HasFailure()) return;
  }
}

// The plan as an object.

TEST_F(StackPlanTest, WithoutKernelsNothingIsWritten) {
  for (const Way& way : kWays) {
    for (const Precision precision : precisions()) {
      for (const bool fused : {true, false}) {
        PlanCase c{.problem = parse_problem("b3 s6 d16 h2 l2 f24"),
                   .choices = {.precision = precision,
                               .fused_attention = fused,
                               .causal_skip = fused,
                               .mask_elision = fused,
                               .graph = way.graph,
                               .partition = way.partition,
                               .threads = 2,
                               .slices = 2},
                   .mask = MaskKind::holes};
        SCOPED_TRACE(to_string(c));
        PlanBench bench(c, rng_);
        StackPlan p = plan(bench, c.choices);
        bench.run(p);
        bench.reset();
        const auto before = bench.output().storage();
        EXPECT_TRUE(p.run_without_kernels(bench.call()));
        EXPECT_EQ(bench.output().storage(), before);
        bench.run(p);
        bench.expect_right(tight_contract(precision));
      }
    }
  }
}

TEST_F(StackPlanTest, TellsItsMemory) {
  PlanCase c{.problem = parse_problem("b3 s6 d16 h2 l2 f24"), .choices = {.threads = 1}};
  PlanBench bench(c, rng_);
  StackPlan p = plan(bench, c.choices);
  EXPECT_EQ(p.scratch_bytes(), make_stack_layout(bench.problem(), c.choices).total_floats * 4);
  EXPECT_GE(arena_.size(), static_cast<std::size_t>(p.scratch_bytes()));
  EXPECT_GE(p.packed_bytes(), 2 * (4 * 16 * 16 + 2 * 16 * 24) * 4);
}

// Plans of one engine share the arena; the callers come from several threads, each with its own tensors.
TEST_F(StackPlanTest, SeveralThreadsRunPlansOfOneArena) {
  constexpr int kThreads = 6, kRounds = 15;
  std::vector<std::unique_ptr<PlanBench>> benches;
  std::vector<std::unique_ptr<StackPlan>> plans;
  for (int t = 0; t < kThreads; ++t) {
    const Way& way = kWays[static_cast<std::size_t>(t) % std::size(kWays)];
    PlanCase c{.problem = parse_problem(t % 2 ? "b3 s6 d16 h2 l2 f24" : "b2 s20 d24 h3 l1 f16 pre"),
               .choices = {.graph = way.graph, .partition = way.partition, .threads = 1 + t % 3, .slices = t % 2}};
    benches.push_back(std::make_unique<PlanBench>(c, rng_));
    plans.push_back(std::make_unique<StackPlan>(benches.back()->problem(), c.choices, benches.back()->weights(),
                                                benches.back()->packs(), arena_));
  }
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        benches[t]->run(*plans[t]);
        benches[t]->expect_right(tight_contract(Precision::fp32));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// One plan, many callers with tensors of their own.
TEST_F(StackPlanTest, OnePlanServesManyThreads) {
  const Problem problem = parse_problem("b3 s9 d16 h2 l2 f24");
  const auto weights = weights_with_norms(problem.config, rng_);
  const Choices choices{.partition = Partition::row, .threads = 2};
  cpu::WeightPacks packs;
  StackPlan p(problem, choices, weights, packs, arena_);
  constexpr int kThreads = 6, kRounds = 20;
  std::vector<TestTensor> inputs, outputs;
  std::vector<std::vector<double>> expected;
  for (int t = 0; t < kThreads; ++t) {
    inputs.emplace_back(std::array<std::int64_t, 3>{3, 9, 16});
    outputs.emplace_back(std::array<std::int64_t, 3>{3, 9, 16});
    inputs.back().fill_normal(rng_);
    expected.push_back(oracle(*weights, inputs.back().const_view(), std::nullopt));
  }
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        outputs[t].fill(std::numeric_limits<double>::quiet_NaN());
        p.run({inputs[t].const_view(), {}, outputs[t].view()});
        const Contract contract = tight_contract(Precision::fp32);
        const Verdict verdict = judge(expected[t], outputs[t].const_view(), contract);
        EXPECT_TRUE(verdict.passes(contract)) << to_string(verdict);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gnomon::test
