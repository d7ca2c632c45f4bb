// The oracle against values worked out by hand and against PyTorch's nn.TransformerEncoder (fixtures/make_fixtures.py).
#include "support/oracle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/tensors.hpp"

namespace gnomon::test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(OracleTest, GeluIsTheTabledFunction) {
  EXPECT_NEAR(gelu_erf(1), 0.8413447460685429, 1e-15);  // x times the normal distribution function
  EXPECT_NEAR(gelu_erf(-2), -2 * 0.022750131948179195, 1e-15);
  EXPECT_NEAR(gelu_tanh(1), 0.8411919906082768, 1e-15);  // torch.nn.functional.gelu(x, approximate="tanh")
  EXPECT_EQ(gelu_erf(0), 0);
}

TEST(OracleTest, LayerNormUsesTheBiasedVarianceAndEpsInsideTheRoot) {
  const std::vector<float> weight = {2, 1, 1}, bias = {0, 0, 10};
  const NormWeights norm{weight, bias};
  const double unit = 1 / std::sqrt(2.0 / 3 + 0.5);
  EXPECT_THAT(layer_norm({1, 2, 3}, norm, 0.5),
              ElementsAre(DoubleNear(-2 * unit, 1e-12), DoubleNear(0, 1e-12), DoubleNear(10 + unit, 1e-12)));
}

// One layer, d=1 head of size 2, Q = K = 0 so that attention is the mean of the seen values, V = out_proj = 1, no FFN.
class ByHand {
 public:
  explicit ByHand(bool causal)
      : config_{.layers = 1,
                .d_model = 2,
                .n_heads = 1,
                .d_ff = 1,
                .norm = NormPlacement::pre,
                .causal = causal,
                .bias = false} {
    const auto add = [&](const char* name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
      tensors_.push_back({std::string("layers.0.") + name, DType::f32, std::move(shape), values.data()});
    };
    for (const char* name : {"attn.q_proj.weight", "attn.k_proj.weight"}) add(name, {2, 2}, zeros_);
    for (const char* name : {"attn.v_proj.weight", "attn.out_proj.weight"}) add(name, {2, 2}, identity_);
    for (const char* name : {"norm1.weight", "norm2.weight"}) add(name, {2}, ones_);
    for (const char* name : {"norm1.bias", "norm2.bias"}) add(name, {2}, zeros_);
    add("fc1.weight", {1, 2}, zeros_);
    add("fc2.weight", {2, 1}, zeros_);
  }
  Weights weights() const { return Weights::from_tensors(config_, tensors_); }

 private:
  const std::vector<float> zeros_ = {0, 0, 0, 0}, identity_ = {1, 0, 0, 1}, ones_ = {1, 1};
  StackConfig config_;
  std::vector<NamedTensor> tensors_;
};

// A normalised row of two different values is (-1, 1) or (1, -1): with eps = 1e-5 and values 10 apart, to 2e-7.
const float kTokens[3][2] = {{0, 10}, {10, 0}, {0, 10}};

std::vector<double> run(const ByHand& stack, std::optional<std::vector<std::uint8_t>> valid) {
  std::optional<MaskView> mask;
  if (valid) mask = MaskView{valid->data(), {1, 3}, {3, 1}};
  return oracle(stack.weights(), ConstTensorView::contiguous(kTokens, DType::f32, {1, 3, 2}), mask);
}

TEST(OracleTest, AttentionAveragesWhatAQuerySees) {
  const double third = 1.0 / 3;
  EXPECT_THAT(run(ByHand(false), {}),
              Pointwise(DoubleNear(1e-6), {-third, 10 + third, 10 - third, third, -third, 10 + third}));
  EXPECT_THAT(run(ByHand(true), {}), Pointwise(DoubleNear(1e-6), {-1.0, 11.0, 10.0, 0.0, -third, 10 + third}));
}

TEST(OracleTest, PaddingAndCausalityAreAnded) {
  const std::vector<std::uint8_t> left = {0, 1, 1};
  EXPECT_THAT(run(ByHand(false), left), Pointwise(DoubleNear(1e-6), {0.0, 10.0, 10.0, 0.0, 0.0, 10.0}));
  EXPECT_THAT(run(ByHand(true), left), Pointwise(DoubleNear(1e-6), {0.0, 10.0, 11.0, -1.0, 0.0, 10.0}));
  EXPECT_THAT(run(ByHand(false), std::vector<std::uint8_t>{0, 0, 0}),
              Pointwise(DoubleNear(1e-6), {0.0, 10.0, 10.0, 0.0, 0.0, 10.0}));
}

TEST(OracleTest, NanInAPaddedTokenStaysThere) {
  const Weights weights = Weights::random({.layers = 2, .d_model = 8, .n_heads = 2, .d_ff = 8, .causal = false}, 1);
  Rng rng(7);
  TestTensor input({2, 4, 8});
  input.fill_normal(rng);
  TestMask mask(2, 4, MaskKind::all_true, rng);
  mask.set(0, 1, false);
  const auto clean = oracle(weights, input.const_view(), mask.view());
  for (int i = 0; i < 8; ++i) set_value(input.view(), 0, 1, i, kNaN);
  const auto dirty = oracle(weights, input.const_view(), mask.view());
  for (std::size_t n = 0; n < clean.size(); ++n) {
    if (n / 8 == 1) {
      EXPECT_TRUE(std::isnan(dirty[n])) << n;
    } else {
      EXPECT_EQ(dirty[n], clean[n]) << n;
    }
  }
  mask.set(0, 1, true);
  const auto spread = oracle(weights, input.const_view(), mask.view());
  for (std::size_t n = 0; n < clean.size(); ++n) EXPECT_EQ(std::isnan(spread[n]), n < 4 * 8) << n;
}

class PyTorchTest : public ::testing::TestWithParam<const char*> {};

TEST_P(PyTorchTest, TheOracleAgreesWithTransformerEncoder) {
  std::ifstream file(std::filesystem::path(__FILE__).parent_path() / "fixtures" / (std::string(GetParam()) + ".json"));
  const auto fixture = nlohmann::json::parse(file);
  std::vector<std::vector<float>> values;
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : fixture["weights"].items()) {
    values.push_back(tensor["values"]);
    tensors.push_back({name, DType::f32, tensor["shape"], values.back().data()});
  }
  const Weights weights = Weights::from_tensors(parse_stack_config(fixture["config"].get<std::string>()), tensors);
  const std::vector<float> input = fixture["input"];
  std::vector<std::uint8_t> valid;
  std::optional<MaskView> mask;
  const std::array<std::int64_t, 3> shape = fixture["shape"];
  if (!fixture["mask"].is_null()) {
    for (const auto& row : fixture["mask"]) {
      for (const bool token : row) valid.push_back(token);
    }
    mask = MaskView{valid.data(), {shape[0], shape[1]}, {shape[1], 1}};
  }
  const auto actual = oracle(weights, ConstTensorView::contiguous(input.data(), DType::f32, shape), mask);
  EXPECT_THAT(actual, Pointwise(DoubleNear(1e-12), fixture["output"].get<std::vector<double>>()));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, PyTorchTest,
                         ::testing::Values("post_gelu", "pre_gelu_finalnorm", "post_relu_causal", "pre_tanh_causal",
                                           "post_gelu_right_padding", "post_gelu_holes_causal"),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace gnomon::test
