#include "core/problem.hpp"

#include <cmath>
#include <random>
#include <vector>

#include "core/expect_error.hpp"

namespace gnomon {
namespace {

TEST(Grammar, WhatIsLeftOutHasTheSuitesDefault) {
  EXPECT_EQ(parse_problem(""), Problem{});
  EXPECT_EQ(to_string(parse_problem("b64")), "b64 s100 d128 h4 l3 f512 causal post gelu f32 @cpu");
}

TEST(Grammar, WordsComeInAnyOrder) {
  const Problem p = parse_problem(
      "  @cuda:3 mask headroom=0.5 rel=0.125 abs=1e-3 inplace bf16 eps=1e-12 finalnorm nobias relu pre bi f13 l2 h7 d7 "
      "s0\tb9 ");
  const Problem expected{.batch = 9,
                         .seq = 0,
                         .config = {.layers = 2,
                                    .d_model = 7,
                                    .n_heads = 7,
                                    .d_ff = 13,
                                    .norm = NormPlacement::pre,
                                    .final_norm = true,
                                    .activation = Activation::relu,
                                    .causal = false,
                                    .bias = false,
                                    .eps = 1e-12},
                         .dtype = DType::bf16,
                         .mask = true,
                         .inplace = true,
                         .contract = {.abs = 1e-3, .rel = 0.125, .headroom = 0.5},
                         .device = "cuda:3"};
  EXPECT_EQ(p, expected);
  EXPECT_EQ(
      to_string(p),
      "b9 s0 d7 h7 l2 f13 bi pre relu nobias finalnorm eps=1e-12 bf16 mask inplace abs=0.001 rel=0.125 headroom=0.5 "
      "@cuda:3");
}

TEST(Grammar, FeedForwardWidthsThatReadAsElementTypesAreWrittenWithTwoLetters) {
  EXPECT_EQ(parse_problem("f16").dtype, DType::f16);
  EXPECT_EQ(parse_problem("f16").config.d_ff, 512);
  EXPECT_EQ(parse_problem("ff16").config.d_ff, 16);
  EXPECT_EQ(parse_problem("ff32 f16 d8"), parse_problem("d8 f16 ff32"));
  EXPECT_EQ(to_string(parse_problem("ff32")), "b1 s100 d128 h4 l3 ff32 causal post gelu f32 @cpu");
  EXPECT_EQ(to_string(parse_problem("ff512")), to_string(parse_problem("f512")));
}

Problem random_problem(std::mt19937_64& random) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto real = [&] {
    return std::ldexp(static_cast<double>(pick(1, 1'000'000'007)), static_cast<int>(-pick(20, 60)));
  };
  Problem p;
  p.batch = pick(0, 1000);
  p.seq = pick(0, 1000);
  p.config.n_heads = pick(1, 64);
  p.config.d_model = p.config.n_heads * pick(1, 64);
  p.config.layers = pick(1, 100);
  p.config.d_ff = pick(0, 3) == 0 ? 16 << pick(0, 1) : pick(1, 9000);
  p.config.norm = pick(0, 1) ? NormPlacement::post : NormPlacement::pre;
  p.config.activation = static_cast<Activation>(pick(0, 2));
  p.config.causal = pick(0, 1);
  p.config.bias = pick(0, 1);
  p.config.final_norm = pick(0, 1);
  if (pick(0, 1)) p.config.eps = real();
  p.dtype = std::array{DType::f32, DType::f16, DType::bf16}[static_cast<std::size_t>(pick(0, 2))];
  p.mask = pick(0, 1);
  p.inplace = pick(0, 1);
  if (pick(0, 1)) p.contract = {real(), real(), real()};
  if (pick(0, 1)) p.device = fmt::format("cuda:{}", pick(0, 20));
  return p;
}

TEST(Grammar, WhatIsPrintedIsReadBack) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const Problem p = random_problem(random);
    ASSERT_EQ(parse_problem(to_string(p)), p) << to_string(p);
    ASSERT_EQ(parse_stack_config(to_string(p.config)), p.config) << to_string(p.config);
  }
}

TEST(Grammar, ErrorsNameTheWordItsPlaceAndWhatIsAllowed) {
  const struct {
    const char *text, *says;
  } rows[] = {
      {"b64 s100 dd128", "word 3 'dd128' (column 10): unknown word; allowed: b<n> s<n> d<n>"},
      {"b64 b65", "word 2 'b65' (column 5): a second b<n>"},
      {"causal bi", "word 2 'bi' (column 8): a second causal|bi"},
      {"b1x", "'b1x' (column 1): the value is not an integer"},
      {"b99999999999999999999", "the value is out of range for an integer"},
      {"s-3", "seq is -3"},
      {"eps=", "the value is not a number"},
      {"eps=nan", "eps is nan"},
      {"eps=0", "eps is 0"},
      {"eps=1e-38", "a normal fp32 number, 1.1754944e-38"},
      {"abs=-1", "abs is -1"},
      {"headroom=inf", "headroom is inf"},
      {"@gpu", "'@gpu' (column 1): no such kind of device"},
      {"@cuda:", "no such kind of device"},
      {"@cuda:01", "no such kind of device"},
      {"d10 h3", "d_model 10 is not divisible by n_heads 3"},
      {"l0", "layers is 0"},
      {"d4294967296 h1", "d_model is 4294967296"},
      {"d2147483648 f2147483648 l1000 h1", "bytes of weights"},
      {"b9000000000 s9000000000", "more than can be addressed"},
      {"f64 f64", "a second f<n>"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.text);
    expect_error(ErrorKind::caller, row.says, [&] { parse_problem(row.text); });
  }
  expect_error(ErrorKind::caller, "stack configuration: word 1 'b64'", [] { parse_stack_config("b64"); });
  expect_error(ErrorKind::caller, "a d_ff of 32 is written ff32; allowed: d<n>", [] { parse_stack_config("f32"); });
}

TEST(Grammar, ALongOrBinaryWordIsCutInTheError) {
  expect_error(ErrorKind::caller, std::string(60, 'x') + "...", [] { parse_problem(std::string(1000, 'x')); });
  expect_error(ErrorKind::caller, "'?y'", [] { parse_problem("\xffy"); });
}

TEST(Flops, CountMultiplyAddsTwiceAndTheVisiblePairsOnly) {
  const Problem p = parse_problem("b2 s3 d4 h2 l5 f8 causal");
  EXPECT_EQ(linear_flops(p), 2.0 * 5 * 6 * (4 * 16 + 2 * 32));
  EXPECT_EQ(flops(p), linear_flops(p) + 5 * 2 /*batch*/ * 6 /*pairs*/ * 4 /*d*/ * 4);
  EXPECT_EQ(flops(parse_problem("b2 s3 d4 h2 l5 f8 bi")), linear_flops(p) + 5 * 2 * 9 * 4 * 4);
}

class ProblemOf : public testing::Test {
 protected:
  StackConfig config{.layers = 1, .d_model = 8, .n_heads = 2, .d_ff = 8};
  std::vector<float> a = std::vector<float>(4096), b = std::vector<float>(4096);
  std::vector<std::uint8_t> mask = std::vector<std::uint8_t>(64);
  Call call{.input = ConstTensorView::contiguous(a.data(), DType::f32, {2, 3, 8}),
            .mask = {},
            .output = TensorView::contiguous(b.data(), DType::f32, {2, 3, 8})};

  Problem problem() { return problem_of(config, call, Contract{}, "cpu"); }
  void refused(const std::string& says) {
    expect_error(ErrorKind::caller, says, [&] { problem(); });
  }
};

TEST_F(ProblemOf, PlainCall) {
  EXPECT_EQ(to_string(problem()), "b2 s3 d8 h2 l1 f8 causal post gelu f32 @cpu");
  call.mask = MaskView{mask.data(), {2, 3}, {3, 1}};
  EXPECT_TRUE(problem().mask);
}

TEST_F(ProblemOf, EmptyInputsAreLegalWithoutMemory) {
  for (const auto& shape : {std::array<std::int64_t, 3>{0, 10, 8}, {3, 0, 8}, {0, 0, 8}}) {
    call.input = ConstTensorView::contiguous(nullptr, DType::f32, shape);
    call.output = TensorView::contiguous(nullptr, DType::f32, shape);
    EXPECT_EQ(problem().elements(), 0);
  }
}

TEST_F(ProblemOf, FormsThatDoNotFitAreRefused) {
  const Call good = call;
  call.input.shape[2] = 9;
  refused("expected an input [B, S, 8] (d_model of the weights), got [2, 3, 9]");
  call = good;
  call.output.shape[1] = 4;
  refused("expected an output of the input's shape [2, 3, 8], got [2, 4, 8]");
  call = good;
  call.output.dtype = DType::f16;
  refused("input's type f32, got f16");
  call.input.dtype = call.output.dtype = DType::f64;
  refused("f64");
  call = good;
  call.mask = MaskView{mask.data(), {3, 2}, {2, 1}};
  refused("mask [2, 3] of bytes (nonzero = valid token), got [3, 2]");
  call = good;
  call.input.shape[0] = call.output.shape[0] = -1;
  refused("negative");
  call = good;
  call.output.data = nullptr;
  refused("the address of the output is null");
  call = good;
  call.input.strides[0] = std::int64_t{1} << 62;
  refused("too long");
  call.input.strides[0] = std::int64_t{1} << 59;
  call.input.shape[0] = call.output.shape[0] = 9;
  refused("beyond what can be addressed");
}

TEST_F(ProblemOf, OutputMayBeTheInput) {
  call.output.data = a.data();
  EXPECT_TRUE(problem().inplace);
  call.input.shape[0] = call.output.shape[0] = 1;  // a stride that is never walked does not matter
  call.output.strides[0] = -77;
  EXPECT_TRUE(problem().inplace);
}

TEST_F(ProblemOf, PartialOverlapIsRefusedAndInterleavingIsNot) {
  call.output.data = a.data() + 8;
  refused("overlap");
  call.output.data = a.data() + 48;  // the first element past the input
  EXPECT_FALSE(problem().inplace);
  call.input.strides = {48, 16, 1};  // column slices of one [2, 3, 16] buffer
  call.output = {a.data() + 8, DType::f32, {2, 3, 8}, {48, 16, 1}};
  EXPECT_FALSE(problem().inplace);
  call.output.data = a.data() + 7;
  refused("overlap");
  call.input.strides = {48, 16, 2};  // even and odd elements
  call.output = {a.data() + 1, DType::f32, {2, 3, 8}, {48, 16, 2}};
  EXPECT_FALSE(problem().inplace);
  call.output = {a.data() + 47, DType::f32, {2, 3, 8}, {-24, -8, -1}};  // the input, backwards
  call.input.strides = {24, 8, 1};
  refused("overlap");
}

TEST_F(ProblemOf, ZeroStridesAreForInputsOnly) {
  call.input.strides = {0, 0, 1};
  EXPECT_FALSE(problem().inplace);
  call.output.strides = {0, 8, 1};
  refused("two elements of the output share an address");
  call.output.strides = {8, 8, 1};
  refused("two elements of the output share an address");
  call.output.strides = {-24, 8, 1};
  call.output.data = b.data() + 100;
  EXPECT_FALSE(problem().inplace);
  call.output.data = a.data();
  call.output.strides = call.input.strides = {0, 8, 1};
  refused("two elements of the output share an address");
}

TEST_F(ProblemOf, TheMaskMustNotBeTheOutput) {
  call.mask = MaskView{reinterpret_cast<std::uint8_t*>(b.data()) + 17, {2, 3}, {3, 1}};
  refused("the mask and the output overlap");
}

}  // namespace
}  // namespace gnomon
