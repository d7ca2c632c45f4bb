#include "cpu/product.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/half.hpp"
#include "cpu/cpu_info.hpp"
#include "cpu/floats.hpp"
#include "cpu/thread_pool.hpp"
#include "cpu/vector_test.hpp"
#include "support/oracle.hpp"

namespace gnomon::test {
namespace {

using cpu::Product;
using cpu::ProductSpec;
using cpu::WeightPacks;

class ProductTest : public VectorTest {};

// A Linear with its values.
struct OwnedLinear {
  OwnedLinear(std::int64_t out, std::int64_t in, bool with_bias, Rng& rng)
      : weight(normal_floats(out * in, rng, 0.3)),
        bias(normal_floats(with_bias ? out : 0, rng)),
        view{out, in, weight, bias} {}
  std::vector<float> weight, bias;
  LinearWeights view;
};

struct Case {
  std::vector<std::int64_t> outs;  // of the parts
  std::int64_t rows, in;
  bool bias = true, in_place = false, accumulate = false, bf16 = false;
  std::optional<Activation> activation = {};
};

std::string to_string(const Case& c) {
  return fmt::format("{} rows, in {}, {} parts of {}, bias={} in_place={} accumulate={} bf16={} activation={}", c.rows,
                     c.in, c.outs.size(), c.outs.front(), c.bias, c.in_place, c.accumulate, c.bf16,
                     c.activation ? static_cast<int>(*c.activation) : -1);
}

float rounded(float x, bool bf16) { return bf16 ? bf16_to_float(float_to_bf16(x)) : x; }

double activated(double x, const std::optional<Activation>& activation) {
  if (!activation) return x;
  switch (*activation) {
    case Activation::gelu_erf:
      return gelu_erf(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::relu:
      return std::max(x, 0.0);
  }
  return x;
}

void expect_right(const Case& c, Rng& rng) {
  SCOPED_TRACE(to_string(c));
  std::vector<std::unique_ptr<OwnedLinear>> owned;
  std::vector<const LinearWeights*> parts;
  std::int64_t out = 0;
  for (const std::int64_t n : c.outs) {
    owned.push_back(std::make_unique<OwnedLinear>(n, c.in, c.bias, rng));
    parts.push_back(&owned.back()->view);
    out += n;
  }
  const std::int64_t ldx = c.in + 3, ldy = out + 5;
  const GuardedFloats x(c.rows * ldx), y(c.rows * ldy);
  for (std::int64_t r = 0; r < c.rows; ++r) {
    for (std::int64_t i = 0; i < c.in; ++i) x[r * ldx + i] = normal_floats(1, rng)[0];
    for (std::int64_t o = 0; o < out && c.accumulate; ++o) y[r * ldy + o] = static_cast<float>(o - r);
  }
  std::vector<std::uint16_t> narrow;
  for (std::int64_t i = 0; i < x.size(); ++i) narrow.push_back(float_to_bf16(x[i]));

  WeightPacks packs;
  const ProductSpec spec{.rows = c.rows,
                         .ldx = ldx,
                         .ldy = ldy,
                         .bf16 = c.bf16,
                         .accumulate = c.accumulate,
                         .activate = c.activation.has_value(),
                         .activation = c.activation.value_or(Activation::gelu_erf)};
  const Product product = c.in_place ? Product(*parts.front(), spec, 1) : Product(packs, parts, spec, 1);
  EXPECT_EQ(product.spec(), spec);
  if (c.in_place) {
    EXPECT_EQ(product.packed_bytes(), 0);
  } else {
    EXPECT_GE(product.packed_bytes(), c.in * out * (c.bf16 ? 2 : 4));
  }
  product.run(0, c.bf16 ? static_cast<const void*>(narrow.data()) : x.data(), y.data());

  ASSERT_TRUE(y.guards_intact());
  for (std::int64_t r = 0; r < c.rows; ++r) {
    std::int64_t column = 0;
    for (const auto& part : owned) {
      for (std::int64_t o = 0; o < part->view.out; ++o, ++column) {
        double sum = c.bias ? part->bias[static_cast<std::size_t>(o)] : 0.0;
        for (std::int64_t i = 0; i < c.in; ++i) {
          sum += static_cast<double>(rounded(x[r * ldx + i], c.bf16)) *
                 rounded(part->weight[static_cast<std::size_t>(o * c.in + i)], c.bf16);
        }
        if (c.accumulate) sum += static_cast<double>(column - r);
        ASSERT_NEAR(y[r * ldy + column], activated(sum, c.activation), 2e-5 * (1 + std::fabs(sum)))
            << r << ", " << column;
      }
    }
    for (; column < ldy; ++column) ASSERT_FALSE(y.written(r * ldy + column)) << "row " << r << " past its end";
  }
}

TEST_F(ProductTest, FollowsItsFormula) {
  Rng rng(test_seed());
  for (const std::int64_t rows : {1, 2, 17, 100}) {
    for (const std::int64_t in : {1, 13, 64, 129}) {
      for (const bool bf16 : {false, true}) {
        if (bf16 && !cpu::cpu_info().bf16) continue;
        expect_right({.outs = {7}, .rows = rows, .in = in, .bf16 = bf16}, rng);
        expect_right({.outs = {16, 16, 16}, .rows = rows, .in = in, .bias = false, .bf16 = bf16}, rng);
        expect_right({.outs = {5, 64}, .rows = rows, .in = in, .accumulate = true, .bf16 = bf16}, rng);
        if (!bf16) {
          expect_right({.outs = {7}, .rows = rows, .in = in, .in_place = true}, rng);
          expect_right({.outs = {48}, .rows = rows, .in = in, .bias = false, .in_place = true, .accumulate = true},
                       rng);
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(ProductTest, EachActivationIsTheOneAskedFor) {
  Rng rng(test_seed());
  for (const Activation activation : {Activation::gelu_erf, Activation::gelu_tanh, Activation::relu}) {
    for (const bool in_place : {false, true}) {
      expect_right({.outs = {48}, .rows = 33, .in = 32, .in_place = in_place, .activation = activation}, rng);
      expect_right({.outs = {13}, .rows = 3, .in = 7, .bias = false, .in_place = in_place, .activation = activation},
                   rng);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ProductTest, SeveralWorkersAtOnce) {
  Rng rng(test_seed());
  constexpr std::int64_t kRows = 16, kIn = 48, kOut = 40;
  constexpr int kWorkers = 4, kRounds = 25;
  const OwnedLinear linear(kOut, kIn, true, rng);
  WeightPacks packs;
  const Product product(packs, {&linear.view}, {.rows = kRows, .ldx = kIn, .ldy = kOut}, kWorkers);
  const std::vector<float> x = normal_floats(kWorkers * kRows * kIn, rng);
  std::vector<float> alone(kWorkers * kRows * kOut), together(alone.size());
  const auto share = [&](int worker, std::vector<float>& y) {
    product.run(worker, x.data() + worker * kRows * kIn, y.data() + worker * kRows * kOut);
  };
  for (int w = 0; w < kWorkers; ++w) share(w, alone);
  for (int round = 0; round < kRounds; ++round) {
    std::fill(together.begin(), together.end(), kNaN);
    cpu::ThreadPool::shared().run(kWorkers, [&](int worker) { share(worker, together); });
    ASSERT_EQ(alone, together) << "round " << round;
  }
}

// The rows of a block do not know what else is in it: NaN stays in its row.
TEST_F(ProductTest, NotANumberStaysInItsRow) {
  Rng rng(test_seed());
  const OwnedLinear linear(33, 20, true, rng);
  WeightPacks packs;
  const Product product(packs, {&linear.view}, {.rows = 9, .ldx = 20, .ldy = 33}, 1);
  std::vector<float> x = normal_floats(9 * 20, rng), y(9 * 33);
  x[4 * 20 + 7] = kNaN;
  product.run(0, x.data(), y.data());
  for (std::int64_t i = 0; i < 9 * 33; ++i) ASSERT_EQ(std::isnan(y[static_cast<std::size_t>(i)]), i / 33 == 4) << i;
}

TEST(PlainProduct, FollowsItsFormulaInAnyStride) {
  Rng rng(test_seed());
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {1, 9, 4}, {17, 5, 13}, {33, 48, 20}, {8, 100, 64}}) {
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(fmt::format("m={} n={} k={} transposed={}", m, n, k, transposed));
      const std::int64_t lda = k + 2, ldb = (transposed ? k : n) + 3, ldy = n + 1;
      const std::vector<float> a = normal_floats(m * lda, rng), b = normal_floats((transposed ? n : k) * ldb, rng);
      const GuardedFloats y(m * ldy);
      cpu::PlainProduct(m, n, k, lda, ldb, ldy, transposed, 2).run(1, a.data(), b.data(), y.data());
      ASSERT_TRUE(y.guards_intact());
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (std::int64_t l = 0; l < k; ++l) {
            const std::int64_t at = transposed ? j * ldb + l : l * ldb + j;
            sum += static_cast<double>(a[static_cast<std::size_t>(i * lda + l)]) * b[static_cast<std::size_t>(at)];
          }
          ASSERT_NEAR(y[i * ldy + j], sum, 1e-5 * (1 + std::fabs(sum))) << i << ", " << j;
        }
        ASSERT_FALSE(y.written(i * ldy + n));
      }
    }
  }
}

class WeightPacksTest : public VectorTest {
 protected:
  Rng rng_{1};
  const OwnedLinear a_{32, 16, true, rng_}, b_{32, 16, true, rng_};
  WeightPacks packs_;
  Product product(std::vector<const LinearWeights*> parts, std::int64_t rows = 24) {
    return Product(packs_, parts, {.rows = rows, .ldx = 16, .ldy = 64}, 1);
  }
};

TEST_F(WeightPacksTest, EqualPacksAreShared) {
  EXPECT_EQ(packs_.bytes(), 0);
  const Product first = product({&a_.view});
  const std::int64_t one = packs_.bytes();
  EXPECT_EQ(one, first.packed_bytes());
  const Product second = product({&a_.view});
  EXPECT_EQ(packs_.bytes(), one);
  const Product other = product({&b_.view});
  EXPECT_EQ(packs_.bytes(), 2 * one);
  const Product both = product({&a_.view, &b_.view});
  EXPECT_EQ(packs_.bytes(), 2 * one + both.packed_bytes());
}

TEST_F(WeightPacksTest, TiedWeightsKeepTheirOwnBiases) {
  LinearWeights tied = a_.view;
  tied.bias = b_.bias;
  const Product first = product({&a_.view}, 2), second = product({&tied}, 2);
  std::vector<float> x(2 * 16, 0.0f), y(2 * 64);
  for (const auto& [of, bias] : {std::pair{&first, &a_.bias}, {&second, &b_.bias}}) {
    of->run(0, x.data(), y.data());
    for (std::size_t i = 0; i < 32; ++i) ASSERT_EQ(y[i], (*bias)[i]);
  }
}

TEST_F(WeightPacksTest, TrimDropsWhatNoProductUses) {
  const Product kept = product({&a_.view});
  const std::int64_t one = packs_.bytes();
  {
    const Product dropped = product({&b_.view});
    packs_.trim();
    EXPECT_EQ(packs_.bytes(), 2 * one) << "both are in use";
  }
  packs_.trim();
  EXPECT_EQ(packs_.bytes(), one);
  std::vector<float> x(24 * 16, 1.0f), y(24 * 64);
  kept.run(0, x.data(), y.data());
  const Product again = product({&b_.view});
  EXPECT_EQ(packs_.bytes(), 2 * one);
}

TEST_F(WeightPacksTest, APackOutlivesItsTable) {
  std::optional<WeightPacks> packs(std::in_place);
  const Product lasting(*packs, {&a_.view}, {.rows = 2, .ldx = 16, .ldy = 32}, 1);
  packs.reset();
  std::vector<float> x(2 * 16, 0.0f), y(2 * 32);
  lasting.run(0, x.data(), y.data());
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], a_.bias[i % 32]);
}

TEST(CheckDnnl, TellsTheKindsOfFailureApart) {
  EXPECT_NO_THROW(cpu::check_dnnl(dnnl_success, "doing this"));
  EXPECT_THROW(cpu::check_dnnl(dnnl_out_of_memory, "doing this"), std::bad_alloc);
  for (const auto& [status, kind] :
       {std::pair{dnnl_unimplemented, ErrorKind::environment}, {dnnl_invalid_arguments, ErrorKind::internal}}) {
    try {
      cpu::check_dnnl(status, "doing this");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      EXPECT_NE(std::string(error.what()).find("doing this"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace gnomon::test
