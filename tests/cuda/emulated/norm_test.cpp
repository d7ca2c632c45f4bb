// norm_rows on the emulator: a row in part of a warp, in a warp and in a block, and mixes of types.
#include "emulated/norm.cuh"

#include "cuda/emulated/on_emulator.hpp"
#include "cuda/norm_cases.hpp"

namespace gnomon::test {
namespace {

using kernels::bf16;
using kernels::f16;
using kernels::none;

// The launch of src/cuda/norm.cpp for one instance.
template <typename Residual, typename Branch, typename Narrow, typename Out, int kVec, int kLanes, int kChunks,
          int kRows, int kBranchStep = 1, bool kRemainder = false>
void expect_right(std::int64_t rows, std::int64_t width, Rng& rng, bool bias = true, bool shift = true,
                  bool norm = true, bool in_place = false) {
  ASSERT_GE(std::int64_t{kVec} * kLanes * kChunks, width);
  const NormCase c{
      rows,
      width,
      {dtype_of<Residual>, optional_dtype_of<Branch>(), optional_dtype_of<Narrow>(), optional_dtype_of<Out>()},
      bias,
      shift,
      norm,
      kBranchStep,
      kRemainder,
      in_place};
  expect_norm_right<HostArray>(c, rng, [&](auto&& fill) {
    constexpr int kThreads = kernels::norm_threads<kLanes>, kTogether = kThreads / kLanes * kRows;
    kernels::NormRows p{};
    p.residual_strides = p.to_strides = {rows, rows * width, width, 1};
    p.rows = rows;
    p.width = static_cast<kernels::i32>(width);
    fill(p);
    emulator::emulate(
        &kernels::norm_rows<Residual, Branch, Narrow, Out, kVec, kLanes, kChunks, kRows, kRemainder, kBranchStep>,
        {.blocks = (rows + kTogether - 1) / kTogether, .threads = kThreads}, rng(), p);
  });
}

TEST(EmulatedNorm, PartOfAWarpAWarpAndABlock) {
  Rng rng(test_seed());
  for (int i = 0; i < 3; ++i) {
    expect_right<float, f16, f16, none, 4, 16, 2, 2>(37, 128, rng);
    expect_right<float, f16, f16, none, 1, 2, 7, 2>(19, 13, rng);
    expect_right<float, f16, f16, none, 1, 32, 5, 2>(7, 129, rng);
    expect_right<float, f16, f16, none, 1, 1, 1, 2>(141, 1, rng);
    expect_right<float, f16, f16, none, 4, 16, 2, 1>(9, 100, rng);
    expect_right<float, f16, f16, none, 4, 64, 2, 2>(7, 260, rng);
    expect_right<float, f16, f16, none, 4, 64, 2, 2>(1, 512, rng);
    expect_right<float, f16, f16, none, 4, 512, 3, 1>(3, 5000, rng);
    expect_right<float, f16, f16, none, 1, 128, 8, 2>(3, 1023, rng);
    expect_right<float, f16, f16, none, 1, 512, 17, 1>(2, 8193, rng);
  }
}

TEST(EmulatedNorm, SixteenBitRowsWithTheirRemainder) {
  Rng rng(test_seed());
  expect_right<f16, f16, f16, none, 4, 16, 2, 2, 1, true>(37, 128, rng);
  expect_right<f16, f16, none, float, 4, 16, 2, 2, 1, true>(11, 128, rng);
  expect_right<bf16, bf16, bf16, none, 1, 2, 7, 2, 1, true>(19, 13, rng);
  expect_right<f16, f16, f16, none, 4, 64, 2, 2, 3, true>(7, 260, rng);
  constexpr bool in_place = true;
  expect_right<f16, f16, f16, none, 4, 16, 2, 2, 1, true>(37, 128, rng, true, true, true, in_place);
  expect_right<f16, f16, f16, none, 4, 64, 2, 2, 3, true>(7, 260, rng, true, true, true, in_place);
  expect_right<bf16, bf16, bf16, none, 4, 512, 3, 1, 1, true>(3, 5000, rng, true, true, true, in_place);
}

// A row is what is not finite, or a zero, or subnormal, and stays it.
TEST(EmulatedNorm, RemaindersOfWhatIsNotOrdinary) {
  for (const float x : {0.0f, -0.0f, kInf, -kInf, kNaN, 6e-8f, -3e-5f, 65504.0f}) {
    const f16 narrow = kernels::from_float<f16>(x);
    for (const kernels::u8 byte : {kernels::remainder_of(x, narrow), kernels::u8{0}, kernels::u8{255}}) {
      const float back = kernels::with_remainder(narrow, byte);
      EXPECT_EQ(std::isfinite(back), std::isfinite(x)) << x << " " << int{byte};
      const float least = std::isfinite(x) ? kernels::to_float(narrow) - std::fabs(x) / 1024 : -kInf;
      EXPECT_FALSE(back < least || back > least + std::fabs(x) / 512) << x << " " << int{byte};
    }
  }
}

TEST(EmulatedNorm, TypesAndWhatMayBeAbsent) {
  Rng rng(test_seed());
  expect_right<float, f16, f16, none, 4, 16, 2, 2, 3>(11, 128, rng);
  expect_right<float, float, none, float, 4, 64, 2, 2, 2>(5, 260, rng);
  expect_right<bf16, none, none, bf16, 4, 16, 2, 1>(11, 128, rng);
  expect_right<f16, float, bf16, none, 4, 16, 2, 2>(11, 128, rng);
  expect_right<float, bf16, none, f16, 4, 16, 2, 1>(11, 128, rng);
  for (const bool bias : {false, true}) {
    for (const bool shift : {false, true}) {
      for (const bool norm : {false, true}) {
        expect_right<float, float, none, float, 4, 16, 2, 2>(6, 96, rng, bias, shift, norm);
      }
    }
  }
}

}  // namespace
}  // namespace gnomon::test
