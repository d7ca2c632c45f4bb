// The resident stack against the float64 oracle: every form of random stacks in its range, odd lengths, all masks; and
// that two runs give the same bits.
#include "cuda/resident.hpp"

#include <fmt/format.h>

#include "cuda/on_device.hpp"
#include "cuda/resident_problem.hpp"

namespace gnomon::test {
namespace {

using cuda::ResidentForm;
using cuda::ResidentSpec;

class Resident : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) return;
    if (properties().major != 9) GTEST_SKIP() << "no Hopper: " << properties().name;
  }

  static void expect_right(const Problem& problem, MaskKind kind, std::uint64_t seed) {
    const ResidentProblem p(problem, kind, seed);
    SCOPED_TRACE(p.name);
    DeviceBytes mask(problem.tokens());
    if (!p.mask.empty()) mask.upload(p.mask.data());
    const TestTensor output(p.shape);
    cuda::DeviceWeights on_device(p.weights);
    const cuda::ResidentWeights packed(library(), problem.config, on_device.layout(),
                                       on_device.copy(DType::f32, library(), nullptr), nullptr);
    const ResidentSpec spec{problem.config, problem.batch, problem.seq, problem.mask};
    const auto forms = cuda::resident_forms(spec, properties());
    EXPECT_FALSE(forms.empty());
    for (const ResidentForm& form : forms) {
      auto launch = cuda::resident(library(), spec, form, packed);
      const DeviceTensor from(p.input);
      std::vector<double> results[2];
      for (std::vector<double>& result : results) {
        const DeviceTensor to(output);
        launch.params.input = static_cast<const float*>(from.view().data);
        launch.params.output = static_cast<float*>(to.view().data);
        launch.params.mask.data = p.mask.empty() ? nullptr : mask.data<std::uint8_t>();
        launch.run(nullptr);
        synchronize();
        bool rest_intact = false;
        result = to.values(output, &rest_intact);
        EXPECT_TRUE(rest_intact) << form.to_string() << " wrote outside the output";
      }
      EXPECT_TRUE(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(double)) == 0)
          << form.to_string() << ": two runs differ";
      p.expect_right(results[0], form.to_string());
    }
  }
};

TEST_F(Resident, SuiteShape) { expect_right(parse_problem("b5 s100 d128 h4 l3 f512"), MaskKind::all_true, 1); }

TEST_F(Resident, MoreSequencesThanTheGridHolds) {
  expect_right(parse_problem("b300 s37 d64 h4 l1 f128"), MaskKind::all_true, 2);
}

TEST_F(Resident, EveryMask) {
  for (const MaskKind kind : kMaskKinds) {
    expect_right(parse_problem("b3 s100 d128 h4 l2 f256 mask"), kind, 3);
    expect_right(parse_problem("b3 s61 d64 h2 l2 f128 bi mask"), kind, 4);
  }
}

TEST_F(Resident, RandomStacks) {
  Rng rng(test_seed());
  const auto one_of = [&](auto... values) {
    const std::array list{values...};
    return list[rng() % list.size()];
  };
  for (int i = 0; i < test_count(12); ++i) {
    Problem problem;
    problem.batch = one_of(1, 2, 3, 7);
    problem.seq = 1 + static_cast<std::int64_t>(rng() % 128);
    StackConfig& c = problem.config;
    c.d_model = one_of(64, 128);
    c.n_heads = c.d_model / one_of(16, 32, 64);
    c.d_ff = c.d_model * one_of(1, 2, 4, 5);
    c.layers = one_of(1, 2, 3);
    c.norm = one_of(NormPlacement::post, NormPlacement::pre);
    c.final_norm = one_of(false, true);
    c.causal = one_of(false, true);
    c.bias = one_of(false, true);
    c.activation = one_of(Activation::gelu_erf, Activation::gelu_tanh, Activation::relu);
    problem.mask = one_of(false, true);
    expect_right(problem, kMaskKinds[rng() % std::size(kMaskKinds)], rng());
  }
}

// No device needed.
TEST(ResidentForms, SayWhyNot) {
  cuda::DeviceProperties hopper;
  hopper.major = 9, hopper.max_shared_bytes = 232448;
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
