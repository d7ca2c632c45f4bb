// The resident stack against the float64 oracle: every form of random stacks in its range, odd lengths, all masks; and
// that two runs give the same bits.
#include "cuda/resident.hpp"

#include <fmt/format.h>

#include "cuda/random_stacks.hpp"
#include "cuda/resident_on_device.hpp"

namespace gnomon::test {
namespace {

using cuda::ResidentForm;
using cuda::ResidentSpec;

ResidentForm form_of(const RandomStack& s) {
  return {s.choices.groups, s.choices.cluster, s.choices.paired_activation};
}

class Resident : public ResidentOnDevice {
 protected:
  // In all forms that can run it, or in one.
  static void expect_right(const Problem& problem, MaskKind kind, std::uint64_t seed,
                           std::optional<ResidentForm> only = std::nullopt, float size = 1) {
    ResidentOnDevice::expect_right(problem, kind, seed,
                                   only ? std::vector{*only} : cuda::resident_forms(spec_of(problem), properties()), {},
                                   size);
  }
};

TEST_F(Resident, SuiteShape) { expect_right(parse_problem("b5 s100 d128 h4 l3 f512"), MaskKind::all_true, 1); }

// Exponentials that need a shift, in some rows of some heads.
TEST_F(Resident, LargeScores) {
  const auto problem = parse_problem("b40 s100 d128 h4 l1 f128");
  for (const bool paired : {false, true}) expect_right(problem, MaskKind::all_true, 5, ResidentForm{2, 1, paired}, 3);
}

TEST_F(Resident, MoreSequencesThanTheGridHolds) {
  expect_right(parse_problem("b300 s37 d64 h4 l1 f128"), MaskKind::all_true, 2);
}

TEST_F(Resident, EveryMask) {
  for (const MaskKind kind : kMaskKinds) {
    expect_right(parse_problem("b3 s100 d128 h4 l2 f256 mask"), kind, 3);
    expect_right(parse_problem("b3 s61 d64 h2 l2 f128 bi mask"), kind, 4);
  }
}

// Each in one form that can run it. They are compiled side by side.
TEST_F(Resident, AHundredRandomStacks) {
  const std::uint64_t seed = test_seed();
  std::vector<RandomStack> all;
  std::vector<cuda::KernelSource> sources;
  for (int i = 0; i < test_count(100); ++i) {
    all.push_back(random_stack(seed, i));
    const ResidentSpec spec = spec_of(problem_of(all.back()));
    sources.push_back(cuda::resident_source(spec, form_of(all.back())));
    sources.push_back(cuda::resident_pack_source(spec));
  }
  library().compiler().ahead(std::move(sources), device()->architecture());
  for (std::size_t i = 0; i < all.size(); ++i) {
    expect_right(problem_of(all[i]), all[i].mask, seed + i, form_of(all[i]));
    if (HasFailure()) return;
  }
}

// No device needed.
cuda::DeviceProperties a_hopper() {
  cuda::DeviceProperties hopper;
  hopper.major = 9, hopper.max_shared_bytes = 232448;
  return hopper;
}

TEST(ResidentForms, RunTheRandomStacks) {
  const std::uint64_t seed = test_seed();
  for (int i = 0; i < 1000; ++i) {
    const RandomStack s = random_stack(seed, i);
    ASSERT_EQ(cuda::refuses_resident(spec_of(problem_of(s)), form_of(s), a_hopper()), std::nullopt)
        << to_string(problem_of(s)) << " " << form_of(s).to_string();
  }
}

TEST(ResidentForms, SayWhyNot) {
  cuda::DeviceProperties hopper = a_hopper();
  ResidentSpec spec{.batch = 4, .seq = 100};
  EXPECT_FALSE(cuda::refuses_resident(spec, {2, 1}, hopper));
  EXPECT_EQ(cuda::resident_forms(spec, hopper).front(), (ResidentForm{2, 1}));
  for (const ResidentForm& form : cuda::resident_forms(spec, hopper))
    EXPECT_EQ(ResidentForm::parse(form.to_string()), form);

  const auto refusal = [&](const ResidentSpec& s, const ResidentForm& form = {2, 1}) {
    return cuda::refuses_resident(s, form, hopper).value_or("");
  };
  EXPECT_NE(refusal(spec, {1, 1}).find("2 tiles of 64 tokens"), std::string::npos);
  spec.seq = 129;
  EXPECT_NE(refusal(spec).find("129"), std::string::npos);
  spec.seq = 100;
  spec.config.d_model = 256;
  EXPECT_NE(refusal(spec).find("256"), std::string::npos);
  spec.config.d_model = 128;
  spec.config.d_ff = 500;
  EXPECT_NE(refusal(spec).find("500"), std::string::npos);
  spec.config.d_ff = 512;
  spec.config.n_heads = 1;
  EXPECT_NE(refusal(spec).find("not 128"), std::string::npos);
  spec.config.n_heads = 4;
  hopper.major = 8;
  EXPECT_NE(refusal(spec).find("8.0"), std::string::npos);
}

}  // namespace
}  // namespace gnomon::test
