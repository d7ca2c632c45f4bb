// Operations of the resident stack on rows in registers: the activations' errors, the softmax that leaves out the row's
// maximum where it can, and a norm's statistics, which take one pass where nothing cancels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "cuda/emulator/emulate.hpp"
#include "emulated/resident_tile.cuh"
#include "support/tensors.hpp"

namespace gnomon::kernels::resident {

constexpr int kKeys = 112, kRows = 16;

// scores, weights: [kRows][kKeys], a warp's.
__global__ void softmax_of(const float* scores, float* weights) {
  const int row = static_cast<int>(threadIdx.x) / 4, column = static_cast<int>(threadIdx.x) % 4 * 2;
  const auto at = [&](int i) { return (row + i % 4 / 2 * 8) * kKeys + i / 4 * 8 + column + i % 2; };
  float s[kKeys / 2], inverse[2];
  for (int i = 0; i < kKeys / 2; ++i) s[i] = scores[at(i)];
  u32 p[kKeys / 4];
  softmax_rows(p, s, VisibleKeys<false>{{kKeys, kKeys}, {}}, inverse, [](int) { return false; });
  for (int i = 0; i < kKeys / 2; ++i) {
    weights[at(i)] = to_float(f16{static_cast<std::uint16_t>(p[i / 2] >> i % 2 * 16)}) * inverse[i % 4 / 2];
  }
}

// rows: [kRows][kColumns], a warp's; statistics: [kRows] of a mean and the inverse of a deviation.
constexpr int kColumns = 128;
__global__ void statistics_of(const float* rows, float* statistics) {
  const int row = static_cast<int>(threadIdx.x) / 4, column = static_cast<int>(threadIdx.x) % 4 * 2;
  float x[kColumns / 2], mean[2], inverse[2];
  for (int i = 0; i < kColumns / 2; ++i) {
    x[i] = rows[(row + i % 4 / 2 * 8) * kColumns + i / 4 * 8 + column + i % 2];
  }
  row_statistics(x, 1e-5f, mean, inverse);
  for (int r = 0; r < 2; ++r) {
    statistics[2 * (row + 8 * r)] = mean[r];
    statistics[2 * (row + 8 * r) + 1] = inverse[r];
  }
}

}  // namespace gnomon::kernels::resident

namespace gnomon::test {
namespace {

using namespace kernels::resident;

// What a warp's rows get, largest errors first in units of the row's largest weight.
void expect_softmax_right(const std::vector<float>& scores) {
  std::vector<float> weights(scores.size(), NAN);
  emulator::emulate(&softmax_of, {.blocks = 1, .threads = 32}, 1, scores.data(), weights.data());
  for (int row = 0; row < kRows; ++row) {
    const float *s = scores.data() + row * kKeys, *got = weights.data() + row * kKeys;
    const double largest = *std::max_element(s, s + kKeys);
    double sum = 0;
    for (int i = 0; i < kKeys; ++i) sum += std::exp2(s[i] - largest);
    for (int i = 0; i < kKeys; ++i) {
      const double expected = largest == -INFINITY ? 0 : std::exp2(s[i] - largest) / sum;
      EXPECT_NEAR(got[i], expected, 0x1p-10 * std::max(expected, 1 / sum / 16)) << "row " << row << ", key " << i;
    }
  }
}

// Rows of which some, all or none have a mean so far from zero that a second pass is taken.
TEST(EmulatedResidentRows, StatisticsFarFromZero) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const float offset : {0.0f, 3.0f, 7.5f, 9.0f, 100.0f, 1e4f}) {
    for (const float other : {0.0f, offset}) {
      SCOPED_TRACE(testing::Message() << "means of " << offset << " and " << other);
      std::vector<float> rows(kRows * kColumns), statistics(2 * kRows, NAN);
      for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = (i / kColumns % 3 ? other : offset) + normal(random);
      std::fill_n(rows.begin() + 4 * kColumns, kColumns, other);  // no deviation at all
      emulator::emulate(&statistics_of, {.blocks = 1, .threads = 32}, 1, rows.data(), statistics.data());
      for (int row = 0; row < kRows; ++row) {
        const float* x = rows.data() + row * kColumns;
        double mean = 0, variance = 0;
        for (int i = 0; i < kColumns; ++i) mean += x[i] / kColumns;
        for (int i = 0; i < kColumns; ++i) variance += (x[i] - mean) * (x[i] - mean) / kColumns;
        const double inverse = 1 / std::sqrt(variance + 1e-5);
        EXPECT_NEAR(statistics[2 * row], mean, 1e-6 * (1 + std::abs(mean))) << "row " << row;
        EXPECT_NEAR(statistics[2 * row + 1], inverse, 2e-5 * inverse) << "row " << row;
      }
    }
  }
}

TEST(EmulatedResidentRows, SoftmaxWithAndWithoutMaximum) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const float size : {0.1f, 1.0f, 6.0f, 40.0f, 3000.0f}) {
    for (const float offset : {0.0f, -12.0f, -40.0f, 9.0f, 30.0f}) {
      SCOPED_TRACE(testing::Message() << offset << " + N(0, " << size << ")");
      std::vector<float> scores(kRows * kKeys);
      for (float& s : scores) s = offset + size * normal(random);
      expect_softmax_right(scores);
    }
  }
}

TEST(EmulatedResidentRows, SoftmaxOfARowThatSeesNothing) {
  std::vector<float> scores(kRows * kKeys, 0.5f);
  std::fill_n(scores.begin() + 5 * kKeys, kKeys, -INFINITY);
  std::fill_n(scores.begin() + 9 * kKeys + 1, kKeys - 1, -INFINITY);
  expect_softmax_right(scores);
  scores[3 * kKeys] = NAN;
  std::vector<float> weights(scores.size());
  emulator::emulate(&softmax_of, {.blocks = 1, .threads = 32}, 1, scores.data(), weights.data());
  EXPECT_TRUE(std::isnan(weights[3 * kKeys + 1]));
  EXPECT_FLOAT_EQ(weights[4 * kKeys], 1.0f / kKeys);
}

double gelu(double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

// The fit's error, tanh's relative one of 2^-11, fp16's rounding of the result; pairs have three more roundings of
// tanh's argument, which count most at |x| = 1.5.
template <Activation kKind, bool kPaired>
void expect_activation_right(double (*expected)(double)) {
  for (int i = -14 * 1024; i < 14 * 1024; i += 2) {
    const double xs[] = {i / 1024.0, (i + 1) / 1024.0};
    float y[8] = {};
    for (int k = 0; k < 2; ++k) y[k] = static_cast<float>(xs[k]) * activation_factor<kKind>;
    kernels::u32 a[4];
    activate_rows<kKind, kPaired>(a, y);
    for (int k = 0; k < 2; ++k) {
      const kernels::f16 half{static_cast<std::uint16_t>(a[0] >> 16 * k)};
      const double got = kernels::to_float(half) / activated_factor<kKind>, x = xs[k];
      const double near_one = kPaired ? 6e-4 * std::exp(-0.5 * x * x / 2.25 * 0.8) + std::fabs(x) * 0x1p-11 : 0;
      EXPECT_NEAR(got, expected(x), 3e-5 + std::fabs(x) * 0x1p-12 + std::fabs(expected(x)) * 0x1p-11 + near_one) << x;
    }
  }
}

TEST(EmulatedResidentRows, ActivationsErrors) {
  expect_activation_right<Activation::gelu, false>(gelu);
  expect_activation_right<Activation::gelu, true>(gelu);
  expect_activation_right<Activation::gelu_tanh, false>(gelu_tanh);
  expect_activation_right<Activation::gelu_tanh, true>(gelu_tanh);
}

TEST(EmulatedResidentRows, ActivationsOfWhatIsLargeOrNoNumber) {
  const float y[8] = {100, -100, 4000, NAN};
  kernels::u32 a[4];
  const auto at = [&](int i) {
    return kernels::to_float(kernels::f16{static_cast<std::uint16_t>(a[i / 2] >> i % 2 * 16)});
  };
  const auto expect_values = [&] {
    EXPECT_EQ(at(0), 200);
    EXPECT_EQ(at(1), 0);
    EXPECT_EQ(at(2), 8000);
    EXPECT_TRUE(std::isnan(at(3)));
  };
  activate_rows<Activation::gelu, false>(a, y);
  expect_values();
  activate_rows<Activation::gelu, true>(a, y);
  expect_values();
}

}  // namespace
}  // namespace gnomon::test
