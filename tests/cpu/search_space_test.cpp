#include "cpu/search_space.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/memory.hpp"
#include "cpu/cpu_info.hpp"
#include "cpu/stack_plan.hpp"
#include "cpu/thread_pool.hpp"
#include "cpu/vector_test.hpp"
#include "reference/plain_pass.hpp"

namespace gnomon::test {
namespace {

using cpu::Choices;
using cpu::StackLayout;
using testing::HasSubstr;

class SearchSpaceTest : public VectorTest {
 protected:
  const Problem problem_ = parse_problem("b4 s16 d32 h4 l2 f64 causal");
  std::string reason(const std::string& changes, const Constraints& constraints = {},
                     const char* problem = nullptr) const {
    const Candidate candidate = cpu::to_candidate(Choices{}).with(Candidate::parse(changes).choices());
    const auto refusal = cpu::refuses(problem ? parse_problem(problem) : problem_, constraints, candidate);
    return refusal ? refusal->reason : "";
  }
};

TEST_F(SearchSpaceTest, WhatContradictsItselfIsRefusedWithTheReason) {
  EXPECT_EQ(reason(""), "");
  EXPECT_THAT(reason("graph=off"), HasSubstr("partition"));
  EXPECT_EQ(reason("graph=off partition=row"), "");
  EXPECT_THAT(reason("fused_attention=off"), HasSubstr("fused_attention"));
  EXPECT_THAT(reason("fused_attention=off causal_skip=off"), HasSubstr("mask_elision"));
  EXPECT_EQ(reason("fused_attention=off causal_skip=off mask_elision=off"), "");
  EXPECT_THAT(reason("path=plain"), HasSubstr("every switch off"));
  EXPECT_THAT(reason("partition=diagonal"), HasSubstr("'diagonal'"));
  EXPECT_THAT(reason("causal_skip=on", {}, "b1 s4 d8 h1 bi"), HasSubstr("bidirectional"));
}

TEST_F(SearchSpaceTest, ThePlainPathIsTakenAsItIs) {
  const auto refusal = cpu::refuses(problem_, {}, cpu::to_candidate(cpu::plain_choices(1)));
  EXPECT_FALSE(refusal) << refusal->reason;
}

TEST_F(SearchSpaceTest, MoreThreadsThanThereMayBe) {
  const int cores = cpu::available_cores();
  EXPECT_EQ(reason(fmt::format("threads={}", cores)), "");
  EXPECT_THAT(reason(fmt::format("threads={}", cores + 1)),
              HasSubstr(fmt::format("threads={}: at most {}", cores + 1, cores)));
  EXPECT_THAT(reason("threads=2", {.threads = 1}), HasSubstr("at most 1"));
}

TEST_F(SearchSpaceTest, ReducedPrecision) {
  for (const char* precision : {"precision=bf16", "precision=bf16_qk"}) {
    EXPECT_THAT(reason(precision, {.fp32_only = true}), HasSubstr("fp32_only"));
    EXPECT_THAT(reason(precision), cpu::cpu_info().bf16 ? testing::Matcher<std::string>("") : HasSubstr("bf16"));
  }
}

TEST_F(SearchSpaceTest, MemoryLimitIsKeptToTheByte) {
  for (const Choices& c : {Choices{}, Choices{.threads = 1, .slices = 1}, cpu::plain_choices(1)}) {
    const std::int64_t floats =
        c.path == cpu::Path::plain
            ? reference::PlainPass::scratch_floats(problem_.config, problem_.batch, problem_.seq, problem_.seq, 1)
            : cpu::make_stack_layout(problem_, c).total_floats;
    const std::int64_t weights = weight_bytes(problem_.config, 4) * (c.path == cpu::Path::plain ? 1 : 2);
    const std::int64_t needed = tensor_bytes(problem_) + weights + floats * 4;
    const Candidate candidate = cpu::to_candidate(c);
    EXPECT_FALSE(cpu::refuses(problem_, {.memory_limit = needed}, candidate)) << candidate.to_string();
    const auto refusal = cpu::refuses(problem_, {.memory_limit = needed - 1}, candidate);
    ASSERT_TRUE(refusal) << candidate.to_string();
    EXPECT_THAT(refusal->reason, HasSubstr("memory_limit"));
    for (const std::int64_t bytes : {needed, weights, floats * 4})
      EXPECT_THAT(refusal->reason, HasSubstr(format_bytes(static_cast<double>(bytes))));
  }
}

TEST_F(SearchSpaceTest, WhatNoMachineHasIsRefused) {
  EXPECT_THAT(reason("fused_attention=off causal_skip=off mask_elision=off", {}, "b4096 s100000 d64 h4 l1"),
              HasSubstr("available"));
}

// The search's own words: the guess and every alternative of every group are understood, and not refused for being
// contradictory; what the constraints or the machine forbid may be.
TEST_F(SearchSpaceTest, EstimateAndAlternativesAreSound) {
  for (const char* text : {"b1 s1 d8 h1 l1 f8", "b1 s100 d128 h4", "b64 s100 d128 h4 mask", "b4 s512 d64 h2 bi",
                           "b300 s4 d64 h4 bi mask", "b2 s2048 d128 h4 pre"}) {
    const Problem problem = parse_problem(text);
    for (const int threads : {1, 2, 3, 64}) {
      const Choices guess = cpu::estimate_choices(problem, threads);
      const Candidate incumbent = cpu::to_candidate(guess);
      SCOPED_TRACE(fmt::format("{} on {}: {}", text, threads, incumbent.to_string()));
      EXPECT_EQ(guess.threads, threads);
      EXPECT_TRUE(guess.slices >= 0 && guess.slices < std::max<std::int64_t>(2, problem.batch));
      EXPECT_EQ(guess.precision, cpu::Precision::fp32) << "a guess is not judged: it must be precise";
      if (threads <= cpu::available_cores()) {
        const auto refusal = cpu::refuses(problem, {}, incumbent);
        EXPECT_FALSE(refusal) << refusal->reason;
      }
      std::set<std::string> names;
      for (const Group& group : cpu::search_groups(problem, guess, threads)) {
        EXPECT_TRUE(names.insert(group.name).second);
        EXPECT_FALSE(group.alternatives.empty()) << group.name;
        for (const auto& changes : group.alternatives) EXPECT_NO_THROW(cpu::parse_choices(incumbent.with(changes)));
      }
    }
  }
}

TEST_F(SearchSpaceTest, AnEstimateShrinksUntilItFits) {
  for (const char* text : {"b64 s100 d64 h4 l2 f128", "b1 s3000 d64 h4 l2 f128", "b7 s33 d64 h4 l2 f128 pre mask"}) {
    const Problem problem = parse_problem(text);
    const Choices usual = cpu::estimate_choices(problem, 4);
    const auto bytes = [&](const Choices& c) { return make_stack_layout(problem, c).total_floats * 4; };
    const Choices least = cpu::shrunk_to_fit(problem, usual, 0);
    EXPECT_EQ(least.threads, 1);
    EXPECT_EQ(least.chunk, 32);
    EXPECT_EQ(cpu::to_candidate(cpu::shrunk_to_fit(problem, usual, bytes(usual))), cpu::to_candidate(usual));
    for (std::int64_t room = bytes(least); room < bytes(usual); room = room * 5 / 4)
      EXPECT_LE(bytes(cpu::shrunk_to_fit(problem, usual, room)), room) << text;
  }
}

TEST_F(SearchSpaceTest, PlainSecondsGrowWithTheProblemAndShrinkWithThreads) {
  const double one = cpu::plain_seconds(problem_, 1);
  EXPECT_GT(one, 0);
  EXPECT_GT(cpu::plain_seconds(parse_problem("b8 s16 d32 h4 l2 f64 causal"), 1), 1.5 * one);
  EXPECT_LT(cpu::plain_seconds(problem_, 2), one);
}

TEST_F(SearchSpaceTest, MorePreciseIsLessComplex) {
  EXPECT_LT(cpu::complexity(cpu::plain_choices(8)), cpu::complexity(Choices{}));
  EXPECT_LT(cpu::complexity(Choices{}), cpu::complexity({.precision = cpu::Precision::bf16_qk}));
  EXPECT_LT(cpu::complexity({.precision = cpu::Precision::bf16_qk}),
            cpu::complexity({.precision = cpu::Precision::bf16}));
  EXPECT_LT(cpu::complexity({.fused_qkv = false}), cpu::complexity(Choices{}));
}

// Layouts.

struct Region {
  const char* name;
  std::int64_t at, floats;
};

void expect_apart(std::vector<Region> regions, std::int64_t end) {
  std::erase_if(regions, [](const Region& r) { return r.floats == 0; });
  std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.at < b.at; });
  std::int64_t free = 0;
  for (const Region& r : regions) {
    EXPECT_GE(r.at, free) << r.name << " begins inside its neighbour";
    EXPECT_EQ(r.at % 16, 0) << r.name << " is not on a cache line";
    free = r.at + r.floats;
  }
  EXPECT_LE(free, end) << "past the part's end";
}

void check_layout(const Problem& problem, const Choices& c) {
  SCOPED_TRACE(to_string(problem) + " " + cpu::to_candidate(c).to_string());
  const StackLayout l = cpu::make_stack_layout(problem, c);
  const StackConfig& config = problem.config;
  EXPECT_GE(l.slices * l.slice_sequences, problem.batch);
  EXPECT_LT((l.slices - 1) * l.slice_sequences, problem.batch);
  EXPECT_GE(l.workers, 1);
  EXPECT_LE(l.workers, c.threads);
  EXPECT_EQ(l.owners, c.partition == cpu::Partition::sequence ? l.workers : 1);
  const std::int64_t rows = l.slice_sequences * problem.seq, d = config.d_model,
                     pairs = l.slice_sequences * config.n_heads;
  EXPECT_GE(l.block_rows, 1);
  EXPECT_LE(l.block_rows, c.chunk ? c.chunk : rows);
  for (std::int64_t smaller = problem.seq; smaller <= rows; smaller += problem.seq) {
    EXPECT_LE(l.rows_of_block(smaller), l.block_rows) << "a worker's part holds no block of the smaller slice";
    EXPECT_GE(l.rows_of_block(smaller), 1);
  }
  const bool elides = problem.mask && c.mask_elision;
  const std::int64_t scores = c.fused_attention ? 0 : pairs * problem.seq * problem.seq;
  expect_apart({{"x", l.x, rows * d},
                {"qkv", l.qkv[0], rows * 3 * d},
                {"next qkv", l.qkv[1], c.partition == cpu::Partition::row ? rows * 3 * d : 0},
                {"keys", l.keys, elides ? rows : 0},
                {"key counts", l.key_counts, elides ? l.slice_sequences : 0},
                {"scores", l.scores, scores},
                {"weights", l.weights, scores}},
               l.owner_floats);
  const bool needs_norm = config.norm == NormPlacement::pre || !c.fused_norm;
  const std::int64_t widest = std::max(d, config.d_ff);
  expect_apart({{"hidden", l.hidden, l.block_rows * config.d_ff},
                {"norm", l.norm, needs_norm ? l.block_rows * d : 0},
                {"narrow", l.narrow, c.precision == cpu::Precision::fp32 ? 0 : (l.block_rows * widest + 1) / 2},
                {"attention", l.attention,
                 c.fused_attention ? cpu::vec_kernels().head_attention_scratch(problem.seq, config.head_dim()) : 0}},
               l.worker_floats);
  EXPECT_EQ(l.total_floats, l.owners * l.owner_floats + l.workers * l.worker_floats);
}

TEST_F(SearchSpaceTest, RegionsOfALayoutLieApart) {
  for (const char* text :
       {"b1 s1 d7 h7 l1 f13", "b7 s5 d24 h3 f20 mask", "b7 s5 d24 h3 f20 pre mask bi", "b3 s33 d16 h2 f100"}) {
    const Problem problem = parse_problem(text);
    for (const cpu::Partition partition : {cpu::Partition::sequence, cpu::Partition::row, cpu::Partition::head}) {
      for (const int threads : {1, 2, 5}) {
        for (const std::int64_t slices : {0, 1, 2, 3, 100}) {
          for (const std::int64_t chunk : {0, 1, 4, 64}) {
            for (const cpu::Precision precision : {cpu::Precision::fp32, cpu::Precision::bf16}) {
              Choices c{
                  .precision = precision, .partition = partition, .threads = threads, .slices = slices, .chunk = chunk};
              check_layout(problem, c);
              c.fused_attention = c.mask_elision = c.causal_skip = c.fused_norm = false;
              check_layout(problem, c);
              if (HasFailure()) return;
            }
          }
        }
      }
    }
  }
}

// A large batch in slices needs little beyond its own tensors.
TEST_F(SearchSpaceTest, SlicesBoundTheScratch) {
  const Problem problem = parse_problem("b4096 s100 d128 h4 l3 f512");
  const std::int64_t activation = problem.elements();
  EXPECT_LT(cpu::make_stack_layout(problem, {.threads = 2, .slices = 4, .chunk = 128}).total_floats, activation / 10);
  EXPECT_GT(cpu::make_stack_layout(problem, {.threads = 2, .slices = 0}).total_floats, 4 * activation);
}

TEST_F(SearchSpaceTest, APartDoesNotShowSlicesItCannotHold) {
  const Problem whole = parse_problem("b64 s10 d16 h2 l1"), part = parse_problem("b8 s10 d16 h2 l1");
  cpu::Choices c = cpu::estimate_choices(whole, 2);
  c.partition = cpu::Partition::sequence;
  c.threads = 2;
  c.slices = 4;
  EXPECT_FALSE(cpu::unlike_whole(part, whole, c)) << "two workers with four sequences each";
  c.slices = 8;
  ASSERT_TRUE(cpu::unlike_whole(part, whole, c));
  EXPECT_NE(cpu::unlike_whole(part, whole, c)->reason.find("take 16 sequences at once: 8 sequences"), std::string::npos)
      << cpu::unlike_whole(part, whole, c)->reason;
  c.partition = cpu::Partition::row;  // both workers on one slice
  EXPECT_FALSE(cpu::unlike_whole(part, whole, c));
  c.slices = 0;
  EXPECT_TRUE(cpu::unlike_whole(part, whole, c)) << "all of 64";
  EXPECT_FALSE(cpu::unlike_whole(whole, whole, c));
  EXPECT_FALSE(cpu::unlike_whole(part, whole, cpu::plain_choices(2)));
}

}  // namespace
}  // namespace gnomon::test
