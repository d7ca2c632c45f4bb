// The reference against the float64 oracle, which shares no code with it.
#include "reference/plain_pass.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/aligned_buffer.hpp"
#include "cpu/plan_case.hpp"

namespace gnomon::test {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
const Contract kTight{.abs = 2e-4, .rel = 2e-3, .headroom = 1};

class PlainPassTest : public testing::Test {
 protected:
  // Runs a pass on poisoned scratch that ends in a guard zone.
  std::vector<unsigned char> run(PlanBench& bench, std::int64_t query_block, int workers) {
    const Problem& p = bench.problem();
    reference::PlainPass pass(*bench.weights(), p.batch, p.seq, query_block, workers);
    EXPECT_EQ(pass.scratch_floats(),
              reference::PlainPass::scratch_floats(p.config, p.batch, p.seq, query_block, workers));
    constexpr std::size_t kGuard = 256;
    const std::size_t bytes = static_cast<std::size_t>(pass.scratch_floats()) * sizeof(float);
    const cpu::AlignedBuffer scratch(bytes + kGuard);
    std::memset(scratch.data(), 0xff, scratch.size());
    bench.reset();
    const auto outside = bench.output().outside(), input = bench.input().storage();
    pass.run(bench.call(), reinterpret_cast<float*>(scratch.data()));
    for (std::size_t i = bytes; i < scratch.size(); ++i)
      EXPECT_EQ(scratch.data()[i], '\xff') << "past the scratch, byte " << i - bytes;
    EXPECT_EQ(bench.output().outside(), outside);
    EXPECT_EQ(bench.input().storage(), input);
    return bench.output().storage();
  }
  Rng rng_{test_seed()};
};

constexpr const char* kProblems[] = {"b1 s1 d7 h7 l1 f13",
                                     "b3 s10 d16 h2 l2 f24 causal",
                                     "b3 s10 d16 h2 l2 f24 bi pre",
                                     "b2 s9 d20 h5 l3 f1 pre finalnorm",
                                     "b2 s13 d24 h3 l2 f40 relu nobias",
                                     "b5 s4 d26 h2 l1 f9 gelu_tanh finalnorm",
                                     "b2 s33 d72 h1 l1 f8 bi"};

TEST_F(PlainPassTest, FollowsTheOracleWithScoresStoredOrBlocked) {
  for (const char* text : kProblems) {
    for (const std::optional<MaskKind> mask :
         {std::optional<MaskKind>(), {MaskKind::holes}, {MaskKind::one_empty}, {MaskKind::left_padded}}) {
      for (const DType dtype : {DType::f32, DType::f16}) {
        PlanCase c{.problem = parse_problem(text),
                   .mask = mask,
                   .input = Layout::sequence_first,
                   .output = Layout::feature_major,
                   .strided_mask = true};
        c.problem.dtype = dtype;
        c.problem.inplace = dtype == DType::f16;
        PlanBench bench(c, rng_);
        const std::int64_t seq = c.problem.seq;
        for (const std::int64_t block : {seq, std::int64_t{1}, (seq + 1) / 2, std::max<std::int64_t>(1, seq - 1)}) {
          for (const int workers : {1, 3}) {
            SCOPED_TRACE(to_string(c) + fmt::format(" query_block={} workers={}", block, workers));
            run(bench, block, workers);
            bench.expect_right(kTight);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(PlainPassTest, RepeatsItsBits) {
  PlanBench bench({.problem = parse_problem("b3 s10 d16 h2 l2 f24")}, rng_);
  EXPECT_EQ(run(bench, 10, 2), run(bench, 10, 2));
  EXPECT_EQ(run(bench, 4, 2), run(bench, 4, 2));
}

// The contract's semantics of NaN, which every plan is judged by.
TEST_F(PlainPassTest, PaddingIsNeverSeen) {
  for (const MaskKind mask : {MaskKind::right_padded, MaskKind::left_padded, MaskKind::holes, MaskKind::one_empty}) {
    for (const double value : {kNotANumber, std::numeric_limits<double>::infinity(), 1e30}) {
      for (const char* text : {"b3 s10 d16 h2 l2 f24 causal", "b3 s10 d16 h2 l2 f24 bi pre"}) {
        PlanBench bench({.problem = parse_problem(text), .mask = mask}, rng_);
        bench.poison_padding(value);
        for (const std::int64_t block : {10, 3}) {
          SCOPED_TRACE(fmt::format("{} mask={} padding={} query_block={}", text, name_of(mask), value, block));
          run(bench, block, 2);
          bench.expect_right_where(kTight,
                                   [&bench](std::int64_t b, std::int64_t s) { return bench.mask().valid(b, s); });
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_F(PlainPassTest, NotANumberReachesOnlyWhatSeesIt) {
  for (const char* text :
       {"b3 s10 d16 h2 l2 f24 causal", "b3 s10 d16 h2 l2 f24 bi", "b3 s10 d16 h2 l2 f24 causal pre"}) {
    for (const std::int64_t block : {10, 3}) {
      SCOPED_TRACE(fmt::format("{} query_block={}", text, block));
      PlanBench bench({.problem = parse_problem(text), .mask = MaskKind::same_tail}, rng_);
      bench.set_input(1, 4, 3, kNotANumber);
      run(bench, block, 2);
      bench.expect_right(kTight);
    }
  }
}

TEST(ReferenceForward, FollowsTheOracle) {
  Rng rng(test_seed());
  for (const char* text : kProblems) {
    for (const int workers : {1, 2}) {
      SCOPED_TRACE(text);
      PlanBench bench({.problem = parse_problem(text), .mask = MaskKind::right_padded}, rng);
      bench.reset();
      reference::forward(*bench.weights(), bench.call(), workers);
      bench.expect_right(kTight);
    }
  }
}

TEST(ReferenceForward, OfNothingIsNothing) {
  Rng rng(1);
  const Weights weights = Weights::random(parse_stack_config("d8 h2 l1 f8"), 1);
  float untouched = 7;
  for (const auto& shape : {std::array<std::int64_t, 3>{0, 4, 8}, {3, 0, 8}, {0, 0, 8}}) {
    reference::forward(weights,
                       {ConstTensorView::contiguous(&untouched, DType::f32, shape),
                        {},
                        TensorView::contiguous(&untouched, DType::f32, shape)},
                       2);
  }
  EXPECT_EQ(untouched, 7);
}

// More than its scratch holds at once: a few sequences at a time, the last of them fewer, and blocks of queries. One
// sequence repeated through stride 0 costs one oracle.
TEST(ReferenceForward, WorksInSlicesOfTheBatch) {
  Rng rng(test_seed());
  StackConfig config = parse_stack_config("d4 h1 l1 f200000");
  const std::int64_t batch = 30, seq = 50;
  ASSERT_GT(reference::PlainPass::scratch_floats(config, batch, seq, seq, 1), std::int64_t{1} << 27)
      << "one slice holds it all";
  const auto weights = weights_with_norms(config, rng);
  TestTensor input({batch, seq, 4}, DType::f32, Layout::broadcast), output({batch, seq, 4});
  input.fill_normal(rng);
  reference::forward(*weights, {input.const_view(), {}, output.view()}, 1);
  ConstTensorView one = input.const_view();
  one.shape[0] = 1;
  const std::vector<double> expected = oracle(*weights, one, std::nullopt), got = output.values();
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i % expected.size()], 1e-3) << i;
}

TEST(ReferenceForward, LongSequencesGoInBlocksOfQueries) {
  Rng rng(test_seed());
  PlanBench bench({.problem = parse_problem("b2 s530 d8 h2 l1 f8 causal"), .mask = MaskKind::holes}, rng);
  bench.reset();
  reference::forward(*bench.weights(), bench.call(), 2);
  bench.expect_right(kTight);
}

}  // namespace
}  // namespace gnomon::test
