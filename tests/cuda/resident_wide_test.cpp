// The resident stack's wide form against the float64 oracle on a device; and, with none, what it refuses and when it is
// searched.
#include "cuda/resident_wide.hpp"

#include <gmock/gmock.h>

#include <set>

#include "cuda/resident_on_device.hpp"
#include "cuda/search_space.hpp"

namespace gnomon::test {
namespace {

using cuda::ResidentForm;
using cuda::ResidentSpec;

constexpr ResidentForm kWide{.cluster = 2, .wide = true};

class ResidentWide : public ResidentOnDevice {
 protected:
  static void expect_right(const Problem& problem, MaskKind kind, std::uint64_t seed) {
    ResidentOnDevice::expect_right(problem, kind, seed, {kWide});
  }
};

TEST_F(ResidentWide, SuiteShape) { expect_right(parse_problem("b5 s100 d512 h8 l3 f2048"), MaskKind::all_true, 1); }

TEST_F(ResidentWide, MoreSequencesThanTheGridHolds) {
  expect_right(parse_problem("b150 s71 d512 h8 l1 f512"), MaskKind::all_true, 2);
}

TEST_F(ResidentWide, EveryMask) {
  for (const MaskKind kind : kMaskKinds) {
    expect_right(parse_problem("b3 s100 d512 h8 l2 f512 mask"), kind, 3);
    expect_right(parse_problem("b2 s104 d512 h8 l2 f1024 bi pre finalnorm mask gelu_tanh"), kind, 4);
  }
}

TEST_F(ResidentWide, RandomStacks) {
  Rng rng(test_seed());
  for (int i = 0; i < test_count(8); ++i) {
    const auto batch = one_of<std::int64_t>(rng, {1, 2, 3, 70}), seq = 1 + static_cast<std::int64_t>(rng() % 104);
    auto [problem, kind, seed] = draw_stack(rng, batch, seq, {512});
    problem.config.n_heads = 8;
    expect_right(problem, kind, seed);
  }
}

TEST(ResidentWideForm, SaysWhyNot) {
  cuda::DeviceProperties device = hopper();
  ResidentSpec spec{.config = {.d_model = 512, .n_heads = 8, .d_ff = 2048}, .batch = 64, .seq = 100};
  EXPECT_EQ(cuda::resident_forms(spec, device), std::vector{kWide});
  EXPECT_EQ(kWide.to_string(), "wide-c2");
  EXPECT_EQ(ResidentForm::parse("wide-c2"), kWide);
  EXPECT_FALSE(ResidentForm::parse("wide-c4"));
  const auto refusal = [&] { return cuda::refuses_resident(spec, kWide, device).value_or(""); };
  EXPECT_EQ(refusal(), "");

  spec.batch = 32;  // half of the device and more would idle
  EXPECT_TRUE(cuda::wide_forms(spec, device).empty());
  EXPECT_EQ(refusal(), "");
  spec.seq = 105;
  EXPECT_THAT(refusal(), testing::HasSubstr("104 tokens, the sequence has 105"));
  spec.seq = 100;
  spec.config.n_heads = 4;
  EXPECT_THAT(refusal(), testing::HasSubstr("not 128"));
  spec.config.n_heads = 8;
  spec.config.d_ff = 1000;
  EXPECT_THAT(refusal(), testing::HasSubstr("1000"));
  spec.config.d_model = 384;
  EXPECT_THAT(refusal(), testing::HasSubstr("not 384"));
  device.major = 8;
  EXPECT_THAT(refusal(), testing::HasSubstr("8.0"));
}

TEST(ResidentWideForm, IsSearchedAndTakenByForce) {
  for (const char* text : {"b64 s100 d512 h8 f2048", "b8 s100 d512 h8 f2048"}) {
    const Problem problem = parse_problem(text);
    const cuda::Choices estimate = cuda::estimate_choices(problem, {}, hopper());
    EXPECT_EQ(estimate.path == cuda::Path::resident, problem.batch == 64);
    std::set<std::string> tiles;
    for (const Group& group : cuda::search_groups(problem, estimate, hopper())) {
      for (const std::vector<Choice>& alternative : group.alternatives) {
        for (const Choice& choice : alternative) tiles.insert(choice.value);
      }
    }
    EXPECT_EQ(tiles.contains("wide-c2"), problem.batch == 64);
    const Candidate forced = cuda::forced_candidate(estimate, {{"path", "resident"}, {"tile", "wide-c2"}});
    EXPECT_EQ(forced.get("tile"), "wide-c2");
    const auto refusal = cuda::refuses(problem, {}, forced, hopper());
    EXPECT_FALSE(refusal) << refusal->reason;
  }
}

}  // namespace
}  // namespace gnomon::test
