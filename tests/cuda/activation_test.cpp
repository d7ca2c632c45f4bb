// Each activation against its own formula in double precision; the two GELUs are told apart.
#include "cuda/activation.hpp"

#include <fmt/format.h>

#include "cuda/activation_cases.hpp"
#include "cuda/on_device.hpp"

namespace gnomon::test {
namespace {

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
          expect_activation_right(activation, dtype, width, with_bias, rng, [&](const auto& x, const auto& bias) {
            return run(activation, dtype, x, bias, width, /*in_place=*/with_bias);
          });
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
