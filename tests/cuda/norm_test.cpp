// norm_rows against double precision: every width that takes another path through it, every mix of types.
#include "cuda/norm.hpp"

#include <fmt/format.h>

#include "cuda/on_device.hpp"

namespace gnomon::test {
namespace {

using cuda::NormTypes;

struct Case {
  std::int64_t rows, width;
  NormTypes types;
  bool bias = true, shift = true, norm = true;
};

std::string to_string(const Case& c) {
  const auto name = [](std::optional<DType> d) { return d ? std::string(gnomon::name_of(*d)) : "-"; };
  return fmt::format("rows={} width={} residual={} branch={} narrow={} out={} bias={} shift={} norm={}", c.rows,
                     c.width, name(c.types.residual), name(c.types.branch), name(c.types.narrow), name(c.types.out),
                     c.bias, c.shift, c.norm);
}

class Norm : public OnDevice {
 protected:
  static constexpr float kEps = 1e-5f;

  static void expect_right(const Case& c, Rng& rng) {
    SCOPED_TRACE(to_string(c));
    const std::int64_t n = c.rows * c.width;
    const auto x = normal_values(n, c.types.residual, rng, 3);
    const auto branch = c.types.branch ? normal_values(n, *c.types.branch, rng) : std::vector<double>();
    const auto bias = normal_values(c.width, DType::f32, rng), weight = normal_values(c.width, DType::f32, rng),
               shift = normal_values(c.width, DType::f32, rng);
    const DeviceArray dx(c.types.residual, x), dbias(DType::f32, bias), dweight(DType::f32, weight),
        dshift(DType::f32, shift);
    const DeviceArray dbranch(c.types.branch.value_or(DType::f32), branch);
    const DeviceArray sum(DType::f32, n), normalised(DType::f32, n), narrow(c.types.narrow.value_or(DType::f32), n),
        out(c.types.out.value_or(DType::f32), n), flags(DType::f32, std::vector<double>{0});
    auto launch = cuda::norm_rows(library(), c.types, c.rows, c.width, cuda::widest_vec(c.width));
    auto& p = launch.params;
    p.residual = dx.data();
    p.branch = c.types.branch ? dbranch.data() : nullptr;
    p.bias = c.bias ? dbias.data<float>() : nullptr;
    p.weight = c.norm ? dweight.data<float>() : nullptr;
    p.shift = c.norm && c.shift ? dshift.data<float>() : nullptr;
    p.eps = kEps;
    p.sum = sum.data<float>();
    p.normalised = normalised.data<float>();
    p.narrow = c.types.narrow ? narrow.data() : nullptr;
    p.to = c.types.out ? out.data() : nullptr;
    p.flags = flags.data<kernels::u32>();
    launch.run(nullptr);
    synchronize();
    for (const DeviceArray* a : {&sum, &normalised, &narrow, &out}) ASSERT_TRUE(a->guards_intact());
    EXPECT_EQ(flags.values()[0], 0);

    const auto got_sum = sum.values(), got = normalised.values(), got_narrow = narrow.values(), got_out = out.values();
    for (std::int64_t r = 0; r < c.rows; ++r) {
      std::vector<double> row(static_cast<std::size_t>(c.width));
      double mean = 0, variance = 0, size = 0;
      for (std::int64_t i = 0; i < c.width; ++i) {
        const auto at = static_cast<std::size_t>(r * c.width + i), column = static_cast<std::size_t>(i);
        row[column] = x[at] + (c.types.branch ? branch[at] : 0) + (c.bias ? bias[column] : 0);
        ASSERT_NEAR(got_sum[at], row[column], 4e-7 * (1 + std::fabs(row[column]))) << at;
        mean += row[column] / static_cast<double>(c.width);
        size = std::max(size, std::fabs(row[column]));
      }
      for (const double v : row) variance += (v - mean) * (v - mean) / static_cast<double>(c.width);
      const double scale = 1 / std::sqrt(variance + kEps);
      for (std::int64_t i = 0; i < c.width; ++i) {
        const auto at = static_cast<std::size_t>(r * c.width + i), column = static_cast<std::size_t>(i);
        double want = row[column], bound = 4e-7 * (1 + size);
        if (c.norm) {
          want = (row[column] - mean) * scale * weight[column] + (c.shift ? shift[column] : 0);
          // The sum's own rounding, 2^-24 of the largest element, is scaled like the element.
          bound = 6e-7 * (1 + std::fabs(want)) + 3e-7 * size * scale * std::fabs(weight[column]);
        }
        ASSERT_NEAR(got[at], want, bound) << "row " << r << " column " << i;
        if (c.types.narrow) {
          ASSERT_EQ(got_narrow[at], stored(got[at], *c.types.narrow)) << at;
        }
        if (c.types.out) {
          ASSERT_EQ(got_out[at], stored(got[at], *c.types.out)) << at;
        }
      }
    }
  }
};

TEST_F(Norm, EveryWidth) {
  Rng rng(test_seed());
  for (const std::int64_t width : {1,   2,   3,   4,   5,   7,    8,    13,   16,   20,   48,   64,   100,  128,   129,
                                   130, 256, 260, 384, 512, 1000, 1023, 1024, 1032, 2048, 5000, 8192, 8193, 16'384}) {
    expect_right({.rows = width > 1000 ? 5 : 37, .width = width, .types = {DType::f32, DType::f16, DType::f16, {}}},
                 rng);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Norm, EveryMixOfTypes) {
  Rng rng(test_seed());
  for (const DType residual : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::optional<DType> branch : {std::optional<DType>(), {DType::f32}, {DType::f16}, {DType::bf16}}) {
      for (const std::optional<DType> out : {std::optional<DType>(), {DType::f32}, {DType::f16}, {DType::bf16}}) {
        const std::optional<DType> narrow = out ? std::nullopt : std::optional(DType::bf16);
        expect_right({.rows = 19, .width = 128, .types = {residual, branch, narrow, out}}, rng);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(Norm, WithoutBiasShiftOrNorm) {
  Rng rng(test_seed());
  for (int bits = 0; bits < 8; ++bits) {
    expect_right({.rows = 6,
                  .width = 96,
                  .types = {DType::f32, DType::f32, {}, {}},
                  .bias = (bits & 1) != 0,
                  .shift = (bits & 2) != 0,
                  .norm = (bits & 4) != 0},
                 rng);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Norm, TheCallersOutputOfAnyLayoutAndItsFlag) {
  Rng rng(test_seed());
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const Layout layout : kOwnLayouts) {
      for (const bool finite : {true, false}) {
        SCOPED_TRACE(fmt::format("{} {} finite={}", gnomon::name_of(dtype), name_of(layout), finite));
        TestTensor in({3, 5, 24}, dtype, layout), to({3, 5, 24}, dtype, layout);
        in.fill_normal(rng);
        if (!finite) set_value(in.view(), 1, 2, 3, kNaN);
        const DeviceTensor din(in), dto(to);
        const auto from = cuda::row_access(din.const_view()), out = cuda::row_access(dto.view());
        const DeviceArray ones(DType::f32, std::vector<double>(24, 1)), flags(DType::f32, std::vector<double>{0});
        auto launch = cuda::norm_rows(library(), {dtype, {}, {}, dtype}, 15, 24, std::min(from.vec, out.vec));
        launch.params.residual = din.view().data;
        launch.params.residual_strides = from.strides;
        launch.params.weight = ones.data<float>();
        launch.params.eps = kEps;
        launch.params.to = dto.view().data;
        launch.params.to_strides = out.strides;
        launch.params.flags = flags.data<kernels::u32>();
        launch.run(nullptr);
        synchronize();
        bool rest_intact = false;
        const auto got = dto.values(to, &rest_intact);
        EXPECT_TRUE(rest_intact);
        const auto bytes = flags.download();
        EXPECT_EQ(bytes[0], finite ? 0u : kernels::u32{kernels::kOutputNotFinite});
        const auto x = in.values();
        for (std::size_t r = 0; r < 15; ++r) {
          double mean = 0, variance = 0;
          for (std::size_t i = 0; i < 24; ++i) mean += x[r * 24 + i] / 24;
          for (std::size_t i = 0; i < 24; ++i) variance += std::pow(x[r * 24 + i] - mean, 2) / 24;
          for (std::size_t i = 0; i < 24; ++i) {
            const double want = (x[r * 24 + i] - mean) / std::sqrt(variance + kEps);
            ASSERT_TRUE(near(got[r * 24 + i], want, 1e-6 * (1 + std::fabs(want)) + unit_of(dtype, want) / 2))
                << r << " " << i << " is " << got[r * 24 + i] << ", expected " << want;
          }
        }
      }
    }
  }
}

TEST_F(Norm, AFarMeanDoesNotCancel) {
  const std::int64_t width = 512;
  std::vector<double> x(width);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1e4 + (i % 2 ? 1 : -1);
  const DeviceArray dx(DType::f32, x), ones(DType::f32, std::vector<double>(width, 1)), y(DType::f32, width);
  auto launch = cuda::norm_rows(library(), {}, 1, width, 8);
  launch.params.residual = dx.data();
  launch.params.weight = ones.data<float>();
  launch.params.eps = 0;
  launch.params.normalised = y.data<float>();
  launch.run(nullptr);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y.values()[i], i % 2 ? 1 : -1, 2e-3);
}

TEST(NormRefusal, NamesTheWidth) {
  EXPECT_FALSE(cuda::refuses_norm(16'384));
  const auto reason = cuda::refuses_norm(16'392);
  ASSERT_TRUE(reason);
  EXPECT_NE(reason->find("16392"), std::string::npos) << *reason;
}

}  // namespace
}  // namespace gnomon::test
