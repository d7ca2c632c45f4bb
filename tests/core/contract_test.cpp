#include "core/contract.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/expect_error.hpp"
#include "core/half.hpp"

namespace gnomon {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

Verdict compare_flat(const std::vector<float>& u, const std::vector<float>& r, const Contract& contract = {}) {
  const auto n = static_cast<std::int64_t>(u.size());
  return compare(ConstTensorView::contiguous(u.data(), DType::f32, {1, 1, n}),
                 ConstTensorView::contiguous(r.data(), DType::f32, {1, 1, n}), contract);
}

TEST(Contract, OneElement) {
  const struct {
    float u, r;
    double worst;
  } rows[] = {
      {1, 1, 0},
      {0.001f, 0, 0.5},  // by abs
      {101, 100, 0.5},   // by rel
      {-101, -100, 0.5},
      {0.5f, 0, 250},
      {kNaN, kNaN, 0},
      {kInf, kInf, 0},
      {-kInf, -kInf, 0},
      {kNaN, 1, kInfinite},
      {kInf, 1, kInfinite},
      {1, kNaN, kInfinite},
      {kInf, kNaN, kInfinite},
      {1, kInf, kInfinite},
      {-kInf, kInf, kInfinite},
      {kNaN, kInf, kInfinite},
      {0.0f, -0.0f, 0},
      {3e38f, -3e38f, 100},
  };
  for (const auto& row : rows) {
    const Verdict v = compare_flat({row.u}, {row.r});
    SCOPED_TRACE(fmt::format("u {} r {}", row.u, row.r));
    if (std::isinf(row.worst)) {
      EXPECT_EQ(v.worst, row.worst);
    } else {
      EXPECT_NEAR(v.worst, row.worst, 1e-6 * row.worst);
    }
    EXPECT_EQ(v.out_of_contract, row.worst > 1 ? 1 : 0);
    EXPECT_EQ(v.first_bad, row.worst > 1 ? 0 : -1);
    EXPECT_EQ(v.passes(Contract{}), row.worst <= 0.9);
  }
}

TEST(Contract, ZeroTolerancesAskForEquality) {
  const Contract exact{.abs = 0, .rel = 0};
  EXPECT_EQ(compare_flat({1, 0, 3}, {1, 0, 3}, exact).worst, 0);
  EXPECT_EQ(compare_flat({1, std::nextafter(0.0f, 1.0f), 3}, {1, 0, 3}, exact).worst, kInfinite);
}

TEST(Contract, HeadroomIsForCandidatesAndOneForAnswers) {
  const Verdict v = compare_flat({0.0019f}, {0});
  EXPECT_FALSE(v.passes(Contract{}));
  EXPECT_TRUE(v.passes(Contract{.headroom = 1}));
  EXPECT_EQ(v.out_of_contract, 0);
  Verdict faulty;
  faulty.fault = "wrote past its end";
  EXPECT_FALSE(faulty.passes(Contract{}));
}

// The definition, with no thought of speed.
Verdict by_definition(const std::vector<float>& u, const std::vector<float>& r, const Contract& c) {
  Verdict v;
  v.elements = static_cast<std::int64_t>(u.size());
  for (std::size_t i = 0; i < u.size(); ++i) {
    const double ui = u[i], ri = r[i], difference = std::fabs(ui - ri);
    double term = std::fmin(difference / c.abs, difference / (c.rel * std::fabs(ri)));
    if (ui == ri || (std::isnan(ui) && std::isnan(ri)))
      term = 0;
    else if (!std::isfinite(ui) || !std::isfinite(ri))
      term = kInfinite;
    v.worst = std::fmax(v.worst, term);
    if (term > 1 && v.out_of_contract++ == 0)
      v.first_bad = static_cast<std::int64_t>(i), v.bad_value = ui, v.bad_reference = ri;
  }
  return v;
}

TEST(Contract, AgreesWithTheDefinitionOnManyBlocks) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (const float noise : {0.0f, 1e-4f, 1e-3f, 1e-1f}) {
    for (const int specials : {0, 3}) {
      std::vector<float> u(20'001), r(u.size());
      for (std::size_t i = 0; i < u.size(); ++i) r[i] = normal(random), u[i] = r[i] + noise * normal(random);
      for (int k = 0; k < specials; ++k) {
        u[random() % u.size()] = std::array{kNaN, kInf, 1e30f}[random() % 3];
        const std::size_t both = random() % u.size();
        u[both] = r[both] = std::array{kNaN, -kInf, kInf}[random() % 3];
        r[random() % u.size()] = std::array{kNaN, kInf, 0.0f}[random() % 3];
      }
      const Verdict got = compare_flat(u, r), expected = by_definition(u, r, {});
      ASSERT_EQ(got.worst, expected.worst);
      ASSERT_EQ(got.elements, expected.elements);
      ASSERT_EQ(got.out_of_contract, expected.out_of_contract);
      ASSERT_EQ(got.first_bad, expected.first_bad);
      if (got.first_bad >= 0) {
        ASSERT_EQ(std::isnan(got.bad_value), std::isnan(expected.bad_value));
        if (!std::isnan(got.bad_value)) {
          ASSERT_EQ(got.bad_value, expected.bad_value);
        }
      }
    }
  }
}

TEST(Contract, OneWrongElementAnywhereIsFound) {
  constexpr std::size_t n = 3 * 2048 + 5;
  for (std::size_t at = 0; at < n; at += 61) {
    std::vector<float> u(n, 1), r(n, 1);
    u[at] = 2;
    const Verdict v = compare_flat(u, r);
    ASSERT_EQ(v.first_bad, static_cast<std::int64_t>(at));
    ASSERT_EQ(v.bad_value, 2);
    ASSERT_EQ(v.bad_reference, 1);
  }
}

TEST(Contract, StridedViewsAreWalkedInIndexOrder) {
  const std::vector<float> r = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<float> transposed = {0, 4, 1, 5, 2, 6, 3, 7};
  const ConstTensorView r_view = ConstTensorView::contiguous(r.data(), DType::f32, {1, 2, 4});
  const ConstTensorView u_view{transposed.data(), DType::f32, {1, 2, 4}, {0, 1, 2}};
  EXPECT_EQ(compare(u_view, r_view, {}).worst, 0);
  transposed[1] = 9;  // element (0, 1, 0)
  EXPECT_EQ(compare(u_view, r_view, {}).first_bad, 4);
  const ConstTensorView backwards{r.data() + 7, DType::f32, {1, 2, 4}, {0, -4, -1}};
  EXPECT_EQ(compare(backwards, backwards, {}).worst, 0);
}

TEST(Contract, AStoredHalfIsAllowedHalfAStepOfItsType) {
  const Contract tight{.abs = 1e-5, .rel = 1e-5};
  const struct {
    DType dtype;
    float step;  // just above 1
  } rows[] = {{DType::f16, 0x1p-10f}, {DType::bf16, 0x1p-7f}};
  for (const auto& row : rows) {
    const auto store = row.dtype == DType::f16 ? float_to_f16 : float_to_bf16;
    const auto worst = [&](float stored, float reference) {
      const std::uint16_t bits = store(stored);
      return compare(ConstTensorView::contiguous(&bits, row.dtype, {1, 1, 1}),
                     ConstTensorView::contiguous(&reference, DType::f32, {1, 1, 1}), tight)
          .worst;
    };
    EXPECT_EQ(worst(1, 1 + row.step / 2), 0) << name_of(row.dtype);
    EXPECT_GT(worst(1, 1 + row.step), 1) << name_of(row.dtype);
    EXPECT_GT(worst(1 + row.step, 1), 1) << name_of(row.dtype);
  }
}

TEST(Contract, EveryRoundedReferencePassesTheTightestContract) {
  std::mt19937_64 random(7);
  std::vector<float> r(5000);
  std::vector<std::uint16_t> u(r.size());
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (std::size_t i = 0; i < r.size(); ++i) {
      r[i] = std::ldexp(std::uniform_real_distribution<float>(-1, 1)(random), static_cast<int>(random() % 40) - 25);
      u[i] = dtype == DType::f16 ? float_to_f16(r[i]) : float_to_bf16(r[i]);
    }
    const Verdict v = compare(ConstTensorView::contiguous(u.data(), dtype, {5, 10, 100}),
                              ConstTensorView::contiguous(r.data(), DType::f32, {5, 10, 100}), {.abs = 0, .rel = 0});
    EXPECT_EQ(v.worst, 0) << name_of(dtype) << " " << v.bad_value << " " << v.bad_reference;
    u[77] = static_cast<std::uint16_t>(u[77] + 1);
    EXPECT_EQ(compare(ConstTensorView::contiguous(u.data(), dtype, {5, 10, 100}),
                      ConstTensorView::contiguous(r.data(), DType::f32, {5, 10, 100}), {.abs = 0, .rel = 0})
                  .out_of_contract,
              1);
  }
}

TEST(Contract, DoublesAreComparedAsDoubles) {
  const double u = 1 + 1e-12, r = 1;
  const Verdict v = compare(ConstTensorView::contiguous(&u, DType::f64, {1, 1, 1}),
                            ConstTensorView::contiguous(&r, DType::f64, {1, 1, 1}), {.abs = 1e-12, .rel = 0});
  EXPECT_NEAR(v.worst, 1, 1e-3);
}

TEST(Contract, ShapesMustAgree) {
  const std::vector<float> x(6);
  expect_error(ErrorKind::caller, "[1, 2, 3] and [1, 3, 2]", [&] {
    compare(ConstTensorView::contiguous(x.data(), DType::f32, {1, 2, 3}),
            ConstTensorView::contiguous(x.data(), DType::f32, {1, 3, 2}), {});
  });
  EXPECT_EQ(compare(ConstTensorView::contiguous(nullptr, DType::f32, {0, 2, 3}),
                    ConstTensorView::contiguous(nullptr, DType::f32, {0, 2, 3}), {})
                .elements,
            0);
}

}  // namespace
}  // namespace gnomon
