// The resident stack's split form against the float64 oracle on a device; and, with none, what it refuses and when it
// is searched.
#include "cuda/resident_split.hpp"

#include <gmock/gmock.h>

#include <set>

#include "cuda/kernels/resident_split_layout.cuh"
#include "cuda/resident_on_device.hpp"
#include "cuda/search_space.hpp"

namespace gnomon::test {
namespace {

using cuda::ResidentForm;
using cuda::ResidentSpec;

ResidentForm split(int cluster) { return {.cluster = cluster, .split = true}; }

class ResidentSplit : public ResidentOnDevice {
 protected:
  static void expect_right(const Problem& problem, MaskKind kind, std::uint64_t seed) {
    ResidentOnDevice::expect_right(problem, kind, seed, cuda::split_forms(spec_of(problem), properties()));
  }
};

// Apart, for the sanitizers.
TEST_F(ResidentSplit, SuiteShape1) { expect_right(parse_problem("b1 s100 d128 h4 l3 f512"), MaskKind::all_true, 1); }
TEST_F(ResidentSplit, SuiteShape3) { expect_right(parse_problem("b16 s100 d128 h4 l3 f512"), MaskKind::all_true, 2); }
TEST_F(ResidentSplit, SuiteShape8) { expect_right(parse_problem("b5 s100 d256 h4 l3 f1024"), MaskKind::all_true, 3); }

TEST_F(ResidentSplit, Halves) {
  expect_right(parse_problem("b9 s113 d128 h2 l2 f256 pre bi finalnorm mask"), MaskKind::holes, 11);
  expect_right(parse_problem("b2 s128 d128 h8 l3 f1024 relu"), MaskKind::all_true, 12);
}

TEST_F(ResidentSplit, MoreSequencesThanTheGridHolds) {
  expect_right(parse_problem("b300 s61 d64 h4 l1 f128"), MaskKind::all_true, 4);
  expect_right(parse_problem("b150 s100 d256 h4 l1 f256"), MaskKind::all_true, 5);
}

TEST_F(ResidentSplit, EveryMask) {
  for (const MaskKind kind : kMaskKinds) {
    expect_right(parse_problem("b3 s100 d128 h4 l2 f256 mask"), kind, 6);
    expect_right(parse_problem("b3 s113 d64 h2 l2 f128 bi pre mask"), kind, 7);
    expect_right(parse_problem("b2 s100 d256 h8 l2 f256 bi mask"), kind, 8);
  }
}

TEST_F(ResidentSplit, LongSequencesAndOtherActivations) {
  expect_right(parse_problem("b3 s250 d128 h2 l2 f256 bi mask gelu_tanh"), MaskKind::holes, 9);
  expect_right(parse_problem("b3 s201 d64 h1 l2 f128 pre finalnorm relu"), MaskKind::all_true, 10);
}

TEST_F(ResidentSplit, RandomStacks) {
  Rng rng(test_seed());
  for (int i = 0; i < test_count(12); ++i) {
    const auto batch = one_of<std::int64_t>(rng, {1, 2, 3, 7}), seq = 1 + static_cast<std::int64_t>(rng() % 250);
    const auto [problem, kind, seed] = draw_stack(rng, batch, seq, {64, 128, 256});
    if (!cuda::split_forms(spec_of(problem), properties()).empty()) expect_right(problem, kind, seed);
  }
}

TEST(ResidentSplitForms, SayWhyNot) {
  cuda::DeviceProperties device = hopper();
  ResidentSpec spec{.batch = 1, .seq = 100};
  EXPECT_EQ(cuda::split_forms(spec, device), (std::vector{split(16), split(8), split(4), split(2), split(1)}));
  for (const ResidentForm& form : cuda::split_forms(spec, device))
    EXPECT_EQ(ResidentForm::parse(form.to_string()), form);
  EXPECT_EQ(split(8).to_string(), "split-c8");
  EXPECT_FALSE(ResidentForm::parse("split-c3"));

  // Many sequences: not by more than two CTAs each.
  const auto offered = [&](std::int64_t batch) {
    std::vector<ResidentForm> forms;
    spec.batch = batch;
    for (const ResidentForm& form : cuda::resident_forms(spec, device))
      if (form.split) forms.push_back(form);
    spec.batch = 1;
    return forms;
  };
  EXPECT_EQ(offered(7), (std::vector{split(16), split(8), split(4), split(2), split(1)}));
  EXPECT_EQ(offered(8), (std::vector{split(8), split(4), split(2), split(1)}));
  EXPECT_EQ(offered(16), (std::vector{split(8), split(4), split(2), split(1)}));
  EXPECT_EQ(offered(17), (std::vector{split(4), split(2), split(1)}));
  EXPECT_EQ(offered(1000), (std::vector{split(2), split(1)}));

  const auto refusal = [&](int cluster) { return cuda::refuses_resident(spec, split(cluster), device).value_or(""); };
  spec.seq = 129;
  EXPECT_THAT(refusal(16), testing::HasSubstr("129 tokens"));
  EXPECT_THAT(refusal(1), testing::HasSubstr("hold 128 tokens"));
  EXPECT_EQ(refusal(2), "");
  spec.seq = 37;
  EXPECT_THAT(refusal(8), testing::HasSubstr("37 tokens are 3 CTAs of 16"));
  spec.seq = 100;
  spec.config.n_heads = 1;
  EXPECT_THAT(refusal(16), testing::HasSubstr("1 heads"));
  spec.config.n_heads = 4, spec.config.d_ff = 384;
  EXPECT_THAT(refusal(16), testing::HasSubstr("d_ff 384"));
  spec.config.d_model = 256, spec.config.d_ff = 1024;
  EXPECT_THAT(refusal(16), testing::HasSubstr("not d_model 256"));
  EXPECT_THAT(refusal(1), testing::HasSubstr("hold 64 tokens"));
  EXPECT_EQ(refusal(2), "");
  spec.seq = 128;
  EXPECT_THAT(refusal(2), testing::HasSubstr("8 stages of 8192 bytes"));
  EXPECT_EQ(refusal(4), "");
  spec.config.n_heads = 2;
  EXPECT_THAT(refusal(4), testing::HasSubstr("not 128"));
  spec.config.n_heads = 4;
  spec.config.d_ff = 500;
  EXPECT_THAT(refusal(4), testing::HasSubstr("500"));
  spec.config.d_model = 512;
  EXPECT_THAT(refusal(4), testing::HasSubstr("not 512"));
  device.major = 8;
  EXPECT_THAT(refusal(4), testing::HasSubstr("8.0"));
}

// A scheduler's registers for the warps that a launch gives it, and no more can be claimed later.
TEST(ResidentSplitForms, ClaimTheRegistersThatTheLaunchHas) {
  for (const int model : {128, 256}) {
    kernels::resident::Choices c{};
    c.seq = 100, c.model = model, c.heads = 4, c.hidden = model, c.groups = model / 64, c.cluster = 4;
    const kernels::resident::SplitLayout layout(c);
    const int warpgroups = layout.threads / 128, launched = 512 / warpgroups / 8 * 8;
    EXPECT_LE(c.groups * layout.registers + kernels::resident::kProducerRegisters, warpgroups * launched);
  }
}

TEST(ResidentSplitForms, AreSearchedAndTakenByForce) {
  for (const char* text : {"b1 s100 d128 h4 f512", "b64 s100 d256 h4 f1024"}) {
    const Problem problem = parse_problem(text);
    const cuda::Choices estimate = cuda::estimate_choices(problem, {}, hopper());
    EXPECT_EQ(estimate.path, cuda::Path::resident);
    std::set<std::string> tiles;
    for (const Group& group : cuda::search_groups(problem, estimate, hopper())) {
      for (const std::vector<Choice>& alternative : group.alternatives) {
        for (const Choice& choice : alternative) tiles.insert(choice.value);
      }
    }
    EXPECT_THAT(tiles, testing::Contains("split-c2"));
    EXPECT_EQ(tiles.contains("split-c8"), problem.batch == 1);
    for (const cuda::Choices& base : {estimate, cuda::estimate_stack(problem, {.fp32_only = true}, hopper())}) {
      const Candidate forced = cuda::forced_candidate(base, {{"path", "resident"}, {"tile", "split-c2"}});
      EXPECT_EQ(forced.get("tile"), "split-c2");
      const auto refusal = cuda::refuses(problem, {}, forced, hopper());
      EXPECT_FALSE(refusal) << refusal->reason;
    }
  }
}

}  // namespace
}  // namespace gnomon::test
