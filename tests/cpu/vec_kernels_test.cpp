// Each kernel against its formula in double precision. The instruction set is chosen once in a process, so ctest runs
// these tests once for each GNOMON_ISA.
#include "cpu/vec_kernels.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "core/half.hpp"
#include "cpu/floats.hpp"
#include "cpu/vector_test.hpp"
#include "support/oracle.hpp"

namespace gnomon::test {
namespace {

using cpu::vec_kernels;
using cpu::VecKernels;

class VecKernelsTest : public VectorTest {};

TEST_F(VecKernelsTest, RunTheInstructionSetThatWasAskedFor) {
  const VecKernels& vec = vec_kernels();
  EXPECT_FALSE(vec.isa.empty());
  EXPECT_TRUE(vec.lanes == 4 || vec.lanes == 8 || vec.lanes == 16) << vec.lanes;
  const char* wanted = std::getenv("GNOMON_ISA");
  if (!wanted) return;
  const std::int64_t lanes = std::strcmp(wanted, "avx512") == 0 ? 16 : std::strcmp(wanted, "avx2") == 0 ? 8 : 4;
  EXPECT_EQ(vec.lanes, lanes) << wanted << " gave " << vec.isa;
}

// Elementwise kernels.

struct Elementwise {
  const char* name;
  std::function<void(float*, std::int64_t)> run;
  double (*formula)(double);
  double absolute, relative;  // |error| <= absolute + relative * |x|
};

double relu_formula(double x) { return x < 0 ? 0.0 : x; }
double scaled(double x) { return x * 0.3f; }

std::vector<Elementwise> elementwise_kernels() {
  const VecKernels& vec = vec_kernels();
  const auto in_place = [](auto kernel) { return [kernel](float* x, std::int64_t n) { kernel(x, x, n); }; };
  return {{"relu", in_place(vec.relu), relu_formula, 0, 0},
          {"scale", [&vec](float* x, std::int64_t n) { vec.scale(x, x, n, 0.3f); }, scaled, 1e-44, 6e-8},
          {"gelu_erf", in_place(vec.gelu_erf), gelu_erf, 2e-7, 3e-7},
          {"gelu_tanh", in_place(vec.gelu_tanh), gelu_tanh, 2e-7, 3e-7}};
}

// A dense grid over where an activation bends, and every power of two with either sign.
std::vector<float> activation_inputs() {
  std::vector<float> x;
  for (int i = -16000; i <= 16000; ++i) x.push_back(static_cast<float>(i) / 1000.0f);
  for (int e = -149; e < 128; ++e) {
    for (const float m : {1.0f, -1.0f, 1.7f, -1.7f}) x.push_back(std::ldexp(m, e));
  }
  return x;
}

TEST_F(VecKernelsTest, ElementwiseKernelsFollowTheirFormulas) {
  for (const Elementwise& kernel : elementwise_kernels()) {
    const std::vector<float> in = activation_inputs();
    std::vector<float> out = in;
    kernel.run(out.data(), static_cast<std::int64_t>(out.size()));
    for (std::size_t i = 0; i < in.size(); ++i) {
      const double x = in[i], want = kernel.formula(x);
      ASSERT_TRUE(near(out[i], want, kernel.absolute + kernel.relative * std::fabs(x)))
          << kernel.name << "(" << x << ") = " << out[i] << ", expected " << want;
    }
  }
}

TEST_F(VecKernelsTest, ElementwiseKernelsKeepToTheirLengthAndGiveEveryElementTheSameArithmetic) {
  Rng rng(test_seed());
  for (const Elementwise& kernel : elementwise_kernels()) {
    for (const std::int64_t n : kernel_lengths()) {
      const GuardedFloats x(n, /*shift=*/n % 3);
      x.fill_normal(rng, 3);
      std::vector<float> alone(x.data(), x.data() + n);
      for (float& value : alone) kernel.run(&value, 1);
      kernel.run(x.data(), n);
      ASSERT_TRUE(x.guards_intact()) << kernel.name << " of " << n;
      ASSERT_EQ(std::memcmp(x.data(), alone.data(), alone.size() * sizeof(float)), 0) << kernel.name << " of " << n;
    }
  }
}

TEST_F(VecKernelsTest, NaNStaysNaNAtEveryPlace) {
  for (const Elementwise& kernel : elementwise_kernels()) {
    for (std::int64_t at = 0; at < 35; ++at) {
      std::vector<float> x(35, 1.0f);
      x[static_cast<std::size_t>(at)] = kNaN;
      kernel.run(x.data(), 35);
      for (std::int64_t i = 0; i < 35; ++i) {
        ASSERT_EQ(std::isnan(x[static_cast<std::size_t>(i)]), i == at) << kernel.name << " at " << i;
      }
    }
  }
}

// x * Phi(x) at -inf is -inf * 0, which PyTorch and oneDNN answer with NaN: so must we, since the one judges the other.
TEST_F(VecKernelsTest, InfinitiesFollowTheFormula) {
  const VecKernels& vec = vec_kernels();
  for (const auto& [name, run] :
       {std::pair{"relu", vec.relu}, {"gelu_erf", vec.gelu_erf}, {"gelu_tanh", vec.gelu_tanh}}) {
    float x[] = {kInf, -kInf, 3e38f, -3e38f};
    run(x, x, 4);
    EXPECT_EQ(x[0], kInf) << name;
    if (run == vec.relu) {
      EXPECT_EQ(x[1], 0.0f);
    } else {
      EXPECT_TRUE(std::isnan(x[1])) << name << "(-inf) = " << x[1];
    }
    EXPECT_EQ(x[2], 3e38f) << name;
    EXPECT_EQ(x[3], 0.0f) << name;
  }
}

// Far to the left the answer is 0: a rounding error of Phi must not be multiplied by a large x.
TEST_F(VecKernelsTest, GeluIsNothingFarToTheLeft) {
  const VecKernels& vec = vec_kernels();
  for (const auto& [name, run] : {std::pair{"gelu_erf", vec.gelu_erf}, {"gelu_tanh", vec.gelu_tanh}}) {
    for (const float at : {-6.0f, -8.0f, -20.0f, -100.0f, -7e4f, -1e20f}) {
      float x = at;
      run(&x, &x, 1);
      EXPECT_LE(std::fabs(x), 2e-6f) << name << "(" << at << ")";
    }
  }
}

// The two forms of GELU differ by up to 4.7e-4: neither may stand in for the other.
TEST_F(VecKernelsTest, TheTwoGelusDiffer) {
  float most = 0;
  for (int i = -400; i <= 400; ++i) {
    float erf = static_cast<float>(i) / 100, tanh = erf;
    vec_kernels().gelu_erf(&erf, &erf, 1);
    vec_kernels().gelu_tanh(&tanh, &tanh, 1);
    most = std::max(most, std::fabs(erf - tanh));
  }
  EXPECT_NEAR(most, 4.73e-4f, 2e-6f);
}

TEST_F(VecKernelsTest, AddGoesRowByRowInAnyStride) {
  Rng rng(test_seed());
  for (const std::int64_t n : kernel_lengths()) {
    const std::int64_t rows = 3, lda = n + 1, ldb = n, ldy = n + 5;
    const std::vector<float> a = normal_floats(rows * lda, rng), b = normal_floats(rows * ldb, rng);
    const GuardedFloats y(rows * ldy);
    vec_kernels().add(a.data(), lda, b.data(), ldb, y.data(), ldy, rows, n);
    ASSERT_TRUE(y.guards_intact()) << n;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < ldy; ++i) {
        if (i < n) {
          ASSERT_EQ(y[r * ldy + i],
                    a[static_cast<std::size_t>(r * lda + i)] + b[static_cast<std::size_t>(r * ldb + i)]);
        } else {
          ASSERT_FALSE(y.written(r * ldy + i)) << "row " << r << " of " << n << " at " << i;
        }
      }
    }
  }
}

TEST_F(VecKernelsTest, AddInPlace) {
  std::vector<float> x(37, 1.5f), b(37, 2.0f);
  vec_kernels().add(x.data(), 37, b.data(), 37, x.data(), 37, 1, 37);
  EXPECT_EQ(x, std::vector<float>(37, 3.5f));
}

TEST_F(VecKernelsTest, LargestMagnitudeAndFiniteness) {
  for (const std::int64_t n : kernel_lengths()) {
    for (const std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
      std::vector<float> x(static_cast<std::size_t>(n), 0.25f);
      bool finite = false;
      const auto place = static_cast<std::size_t>(at);
      x[place] = -8.0f;
      ASSERT_EQ(vec_kernels().max_abs_finite(x.data(), n, &finite), 8.0f) << n << " at " << at;
      ASSERT_TRUE(finite);
      for (const float bad : {kNaN, kInf, -kInf}) {
        x[place] = bad;
        ASSERT_EQ(vec_kernels().max_abs_finite(x.data(), n, &finite), n == 1 ? 0.0f : 0.25f) << bad << " at " << at;
        ASSERT_FALSE(finite) << bad << " at " << at << " of " << n;
      }
    }
  }
  const float largest = std::numeric_limits<float>::max(), least = std::numeric_limits<float>::denorm_min();
  bool finite = false;
  EXPECT_EQ(vec_kernels().max_abs_finite(&largest, 1, &finite), largest);
  EXPECT_TRUE(finite);
  EXPECT_EQ(vec_kernels().max_abs_finite(&least, 1, &finite), least);
}

// LayerNorm.

struct NormCase {
  double offset, scale;
  bool bias;
  double bound;  // of the error, in units of the output's scale (weights and bias are below 2)
};

void expect_layer_norm(std::int64_t n, const NormCase& c, bool in_place, Rng& rng) {
  const std::int64_t rows = 3, ldx = n + 3, ldy = in_place ? ldx : n + 2;
  const GuardedFloats x(rows * ldx), separate(rows * ldy);
  x.fill_normal(rng, c.scale);
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(c.offset);
  const std::vector<float> in(x.data(), x.data() + x.size());
  const std::vector<float> weight = normal_floats(n, rng, 0.5), bias = normal_floats(n, rng, 0.5);
  const GuardedFloats& y = in_place ? x : separate;
  vec_kernels().layer_norm(x.data(), ldx, y.data(), ldy, rows, n, weight.data(), c.bias ? bias.data() : nullptr, 1e-5f);
  ASSERT_TRUE(y.guards_intact());
  const NormWeights norm{weight, c.bias ? std::span<const float>(bias) : std::span<const float>()};
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::vector<double> row(in.begin() + r * ldx, in.begin() + r * ldx + n);
    const std::vector<double> want = layer_norm(row, norm, 1e-5);
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_TRUE(near(y[r * ldy + i], want[static_cast<std::size_t>(i)], c.bound))
          << "d=" << n << " offset=" << c.offset << " scale=" << c.scale << " in_place=" << in_place << ": row " << r
          << " feature " << i << " is " << y[r * ldy + i] << ", expected " << want[static_cast<std::size_t>(i)];
    }
    for (std::int64_t i = n; !in_place && i < ldy; ++i) ASSERT_FALSE(y.written(r * ldy + i));
  }
}

TEST_F(VecKernelsTest, LayerNormFollowsItsFormula) {
  // With an offset, the mean's own rounding (offset * 2^-24, times the root of the terms added) is what limits fp32.
  const NormCase cases[] = {{0, 1, true, 1e-5},    {0, 1, false, 1e-5},     {0, 1e4, true, 1e-5}, {0, 1e-2, true, 2e-5},
                            {1000, 1, true, 2e-3}, {-1e4, 10, false, 2e-3}, {0, 1e15, true, 1e-5}};
  Rng rng(test_seed());
  for (const std::int64_t n : kernel_lengths()) {
    for (const NormCase& c : cases) {
      // Very few features can nearly coincide, and then the offset's rounding is all there is.
      if (n < 4 && c.offset != 0) continue;
      expect_layer_norm(n, c, /*in_place=*/false, rng);
      expect_layer_norm(n, c, /*in_place=*/true, rng);
    }
  }
}

TEST_F(VecKernelsTest, LayerNormOfAConstantRowIsTheBias) {
  for (const std::int64_t n : {1, 7, 13, 16, 33, 128}) {
    for (const float value : {0.0f, 1.0f, -3.0f, 65536.0f}) {
      const std::vector<float> x(static_cast<std::size_t>(n), value), weight(x.size(), 2.0f), bias(x.size(), 0.75f);
      std::vector<float> y(x.size());
      vec_kernels().layer_norm(x.data(), n, y.data(), n, 1, n, weight.data(), bias.data(), 1e-5f);
      EXPECT_EQ(y, bias) << "d=" << n << " of " << value;
      vec_kernels().layer_norm(x.data(), n, y.data(), n, 1, n, weight.data(), nullptr, 1e-5f);
      EXPECT_EQ(y, std::vector<float>(x.size(), 0.0f)) << "d=" << n << " of " << value;
    }
  }
}

TEST_F(VecKernelsTest, LayerNormSpreadsNaNOverItsRowOnly) {
  for (const std::int64_t n : {1, 7, 13, 40}) {
    std::vector<float> x(static_cast<std::size_t>(2 * n), 1.0f), y = x, weight(static_cast<std::size_t>(n), 1.0f);
    x[static_cast<std::size_t>(n - 1)] = kNaN;
    vec_kernels().layer_norm(x.data(), n, y.data(), n, 2, n, weight.data(), nullptr, 1e-5f);
    for (std::int64_t i = 0; i < 2 * n; ++i) ASSERT_EQ(std::isnan(y[static_cast<std::size_t>(i)]), i < n) << n;
  }
}

// Softmax.

std::vector<double> softmax_formula(const float* x, std::int64_t n) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, static_cast<double>(x[i]));
  std::vector<double> y(static_cast<std::size_t>(n), 0.0);
  if (std::isinf(largest)) return y;
  for (std::int64_t i = 0; i < n; ++i) sum += y[static_cast<std::size_t>(i)] = std::exp(x[i] - largest);
  for (double& value : y) value /= sum;
  return y;
}

TEST_F(VecKernelsTest, SoftmaxFollowsItsFormula) {
  Rng rng(test_seed());
  for (const std::int64_t n : kernel_lengths()) {
    for (const double scale : {0.1, 5.0, 60.0, 1e4}) {
      const std::int64_t rows = 3, ldx = n + 1, ldy = n + 4;
      const GuardedFloats x(rows * ldx), y(rows * ldy);
      x.fill_normal(rng, scale);
      for (std::int64_t i = 0; i < n; ++i) {
        if (rng() % 3 == 0) x[ldx + i] = -kInf;  // the second row has masked entries,
        x[2 * ldx + i] = -kInf;                  // the third nothing else
      }
      vec_kernels().softmax(x.data(), ldx, y.data(), ldy, rows, n);
      ASSERT_TRUE(y.guards_intact());
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::vector<double> want = softmax_formula(x.data() + r * ldx, n);
        for (std::int64_t i = 0; i < n; ++i) {
          const double exact = want[static_cast<std::size_t>(i)];
          // exp2's argument carries a rounding error of |x - max| * 2^-24.
          ASSERT_NEAR(y[r * ldy + i], exact, 1e-6 * (exact + 1e-3) + 1e-7 * scale * exact) << n << " scale " << scale;
          if (x[r * ldx + i] == -kInf) {
            ASSERT_EQ(y[r * ldy + i], 0.0f);
          }
        }
      }
      vec_kernels().softmax(x.data(), ldx, x.data(), ldx, rows, n);
      for (std::int64_t r = 0; r < rows; ++r) {
        ASSERT_EQ(std::memcmp(x.data() + r * ldx, y.data() + r * ldy, static_cast<std::size_t>(n) * sizeof(float)), 0);
      }
    }
  }
}

TEST_F(VecKernelsTest, SoftmaxOfARowThatHoldsNaNIsNaN) {
  for (std::int64_t at = 0; at < 37; ++at) {
    std::vector<float> x(74, 1.0f);
    x[static_cast<std::size_t>(at)] = kNaN;
    x[3] = at == 3 ? kNaN : 9.0f;
    vec_kernels().softmax(x.data(), 37, x.data(), 37, 2, 37);
    for (std::size_t i = 0; i < 74; ++i) ASSERT_EQ(std::isnan(x[i]), i < 37) << "NaN at " << at << ", element " << i;
  }
}

TEST_F(VecKernelsTest, SoftmaxOfTheLargestNumbers) {
  std::vector<float> x = {3e38f, 3e38f, -3e38f, -kInf, 0.0f};
  vec_kernels().softmax(x.data(), 5, x.data(), 5, 1, 5);
  EXPECT_EQ(x, (std::vector<float>{0.5f, 0.5f, 0.0f, 0.0f, 0.0f}));
  x = {-3.4e38f, -kInf};
  vec_kernels().softmax(x.data(), 2, x.data(), 2, 1, 2);
  EXPECT_EQ(x, (std::vector<float>{1.0f, 0.0f}));
}

// 16-bit types.

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  return bits;
}

struct HalfType {
  const char* name;
  void (*widen)(const std::uint16_t*, float*, std::int64_t);
  void (*narrow)(const float*, std::uint16_t*, std::int64_t);
  float (*widen_one)(std::uint16_t);
  std::uint16_t (*narrow_one)(float);
};

std::vector<HalfType> half_types() {
  const VecKernels& vec = vec_kernels();
  return {{"f16", vec.from_f16, vec.to_f16, f16_to_float, float_to_f16},
          {"bf16", vec.from_bf16, vec.to_bf16, bf16_to_float, float_to_bf16}};
}

TEST_F(VecKernelsTest, WideningIsExactForEveryPattern) {
  for (const HalfType& type : half_types()) {
    const std::vector<std::uint16_t> bits = all_patterns();
    std::vector<float> wide(bits.size());
    type.widen(bits.data(), wide.data(), 65536);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const float want = type.widen_one(bits[i]);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(wide[i])) << type.name << " " << i;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(want)) << type.name << " " << i;
      }
    }
  }
}

// Every value, every tie between neighbours, and the floats beside each tie.
std::vector<float> narrowing_inputs(const HalfType& type) {
  std::vector<float> inputs = {kNaN,
                               -kNaN,
                               kInf,
                               -kInf,
                               65519.99f,
                               65520.0f,
                               3.4e38f,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::denorm_min(),
                               std::bit_cast<float>(0x7f800001u)};
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float low = type.widen_one(bits), high = type.widen_one(static_cast<std::uint16_t>(bits + 1));
    inputs.push_back(low);
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const auto tie = static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
    for (const float x : {std::nextafter(tie, -kInf), tie, std::nextafter(tie, kInf)}) inputs.push_back(x);
  }
  return inputs;
}

TEST_F(VecKernelsTest, NarrowingRoundsToNearestEven) {
  for (const HalfType& type : half_types()) {
    const std::vector<float> inputs = narrowing_inputs(type);
    std::vector<std::uint16_t> narrow(inputs.size());
    type.narrow(inputs.data(), narrow.data(), static_cast<std::int64_t>(inputs.size()));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (std::isnan(inputs[i])) {
        ASSERT_TRUE(std::isnan(type.widen_one(narrow[i]))) << type.name << " of NaN is " << narrow[i];
      } else {
        ASSERT_EQ(narrow[i], type.narrow_one(inputs[i]))
            << type.name << " of " << fmt::format("{} ({:a})", inputs[i], inputs[i]);
      }
    }
  }
}

TEST_F(VecKernelsTest, ConversionsKeepToTheirLength) {
  Rng rng(test_seed());
  for (const HalfType& type : half_types()) {
    for (const std::int64_t n : kernel_lengths()) {
      const std::vector<float> x = normal_floats(n, rng, 100);
      std::vector<std::uint16_t> narrow(static_cast<std::size_t>(n) + 40, 0x1234);
      type.narrow(x.data(), narrow.data() + 20, n);
      const GuardedFloats wide(n);
      type.widen(narrow.data() + 20, wide.data(), n);
      ASSERT_TRUE(wide.guards_intact()) << type.name << " of " << n;
      for (std::int64_t i = -20; i < n + 20; ++i) {
        const std::uint16_t got = narrow[static_cast<std::size_t>(i + 20)];
        const bool inside = i >= 0 && i < n;
        ASSERT_EQ(got, inside ? type.narrow_one(x[static_cast<std::size_t>(i)]) : 0x1234) << type.name << " of " << n;
        if (inside) {
          ASSERT_EQ(wide[i], type.widen_one(got));
        }
      }
    }
  }
}

}  // namespace
}  // namespace gnomon::test
