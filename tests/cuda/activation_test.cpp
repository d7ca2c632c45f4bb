// Each activation against its own formula in double precision; the two GELUs are told apart.
#include "cuda/activation.hpp"

#include <fmt/format.h>

#include "cuda/on_device.hpp"
#include "support/oracle.hpp"

namespace gnomon::test {
namespace {

double formula(Activation activation, double x) {
  switch (activation) {
    case Activation::gelu_erf:
      return gelu_erf(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::relu:
      return x < 0 ? 0 : x;
  }
  return 0;
}

class ActivationKernel : public OnDevice {
 protected:
  static std::vector<double> run(Activation activation, DType dtype, const std::vector<double>& x,
                                 const std::vector<double>& bias, std::int64_t width, bool in_place) {
    const DeviceArray from(dtype, x), to(dtype, static_cast<std::int64_t>(x.size())), b(DType::f32, bias);
    auto launch = cuda::activate(library(), dtype, activation, static_cast<std::int64_t>(x.size()) / width, width);
    launch.params.from = from.data();
    launch.params.to = in_place ? from.data() : to.data();
    launch.params.bias = bias.empty() ? nullptr : b.data<float>();
    launch.run(nullptr);
    synchronize();
    EXPECT_TRUE(from.guards_intact() && to.guards_intact());
    return (in_place ? from : to).values();
  }
};

TEST_F(ActivationKernel, EveryTypeWidthAndBias) {
  Rng rng(test_seed());
  for (const Activation activation : {Activation::gelu_erf, Activation::gelu_tanh, Activation::relu}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const std::int64_t width : {13, 22, 64, 512}) {
        for (const bool with_bias : {false, true}) {
          SCOPED_TRACE(fmt::format("activation {} {} width {} bias {}", static_cast<int>(activation),
                                   gnomon::name_of(dtype), width, with_bias));
          const auto x = normal_values(width * 41, dtype, rng, 3);
          const auto bias = with_bias ? normal_values(width, DType::f32, rng) : std::vector<double>();
          const auto got = run(activation, dtype, x, bias, width, /*in_place=*/with_bias);
          for (std::size_t i = 0; i < x.size(); ++i) {
            const double sum = static_cast<float>(x[i] + (with_bias ? bias[i % static_cast<std::size_t>(width)] : 0));
            const double want = formula(activation, sum);
            const double rounding = dtype == DType::f32 ? 0 : unit_of(dtype, want) / 2;
            ASSERT_NEAR(got[i], want, 3e-7 * std::max(1.0, std::fabs(sum)) + rounding) << "x = " << sum;
          }
        }
      }
    }
  }
}

TEST_F(ActivationKernel, WhatIsNotFinite) {
  const std::vector<double> x = {kNaN, kInf, -kInf, 0, -0.0, 1e30, -1e30, 65504};
  const auto erf = run(Activation::gelu_erf, DType::f32, x, {}, 8, false);
  EXPECT_TRUE(std::isnan(erf[0]));
  EXPECT_EQ(erf[1], kInf);
  EXPECT_EQ(erf[5], static_cast<float>(1e30));
  const auto tanh = run(Activation::gelu_tanh, DType::f32, x, {}, 8, false);
  EXPECT_TRUE(std::isnan(tanh[0]));
  EXPECT_EQ(tanh[1], kInf);
  const auto relu = run(Activation::relu, DType::f32, x, {}, 8, false);
  EXPECT_TRUE(std::isnan(relu[0]));
  EXPECT_EQ(relu[1], kInf);
  EXPECT_EQ(relu[2], 0);
}

TEST_F(ActivationKernel, TheTwoGelusDiffer) {
  const std::vector<double> x(8, 2.3);
  EXPECT_GT(std::fabs(run(Activation::gelu_erf, DType::f32, x, {}, 8, false)[0] -
                      run(Activation::gelu_tanh, DType::f32, x, {}, 8, false)[0]),
            1e-4);
}

}  // namespace
}  // namespace gnomon::test
