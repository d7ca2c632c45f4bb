// norm_rows against double precision: every width that takes another path through it, every mix of types.
#include "cuda/norm.hpp"

#include <fmt/format.h>

#include "cuda/norm_cases.hpp"
#include "cuda/on_device.hpp"

namespace gnomon::test {
namespace {

using cuda::NormTypes;

class Norm : public OnDevice {
 protected:
  static constexpr float kEps = kNormEps;

  static void expect_right(const NormCase& c, Rng& rng) {
    const NormTypes types{c.types.residual, c.types.branch, c.types.narrow, c.types.out, c.remainder};
    expect_norm_right<DeviceArray>(c, rng, [&](auto&& fill) {
      auto launch = cuda::norm_rows(library(), types, c.rows, c.width, cuda::widest_vec(c.width));
      fill(launch.params);
      launch.run(nullptr);
      synchronize();
    });
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

TEST_F(Norm, SixteenBitRowsWithTheirRemainder) {
  Rng rng(test_seed());
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const std::int64_t width : {1, 13, 128, 512, 1000, 1024, 5000, 16'384}) {
      for (const std::optional<DType> out : {std::optional<DType>(), {DType::f32}}) {
        const std::optional<DType> narrow = out ? std::nullopt : std::optional(type);
        for (const bool in_place : {false, true}) {
          if (in_place && out) continue;
          expect_right(
              {.rows = 19, .width = width, .types = {type, type, narrow, out}, .remainder = true, .in_place = in_place},
              rng);
          if (HasFatalFailure()) return;
        }
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
