// Each activation against its own formula in double precision, on the device and on the emulator.
#pragma once

#include <gtest/gtest.h>

#include "core/stack_config.hpp"
#include "cuda/arrays.hpp"
#include "support/oracle.hpp"

namespace gnomon::test {

inline double activation_formula(Activation activation, double x) {
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

// `run` takes x and, when there is one, the bias of a row.
template <typename Run>
void expect_activation_right(Activation activation, DType dtype, std::int64_t width, bool with_bias, Rng& rng,
                             Run&& run) {
  const auto x = normal_values(width * 41, dtype, rng, 3);
  const auto bias = with_bias ? normal_values(width, DType::f32, rng) : std::vector<double>();
  const std::vector<double> got = run(x, bias);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double sum = static_cast<float>(x[i] + (with_bias ? bias[i % static_cast<std::size_t>(width)] : 0));
    const double want = activation_formula(activation, sum);
    const double rounding = dtype == DType::f32 ? 0 : unit_of(dtype, want) / 2;
    ASSERT_NEAR(got[i], want, 3e-7 * std::max(1.0, std::fabs(sum)) + rounding) << "x = " << sum;
  }
}

}  // namespace gnomon::test
