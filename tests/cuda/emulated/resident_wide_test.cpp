// The resident stack's wide form on the emulator, against the float64 oracle.
#include "emulated/resident_wide.cuh"

#include "cuda/emulated/resident.hpp"
#include "cuda/shifted_scores.hpp"

namespace gnomon::test {
namespace {

using kernels::resident::WideStack;

template <typename S>
void expect_wide_right(std::int64_t batch, std::int64_t layers, MaskKind kind, std::uint64_t seed, int clusters = 1) {
  const ResidentProblem p(problem_of(S::c, batch, layers, true), kind, seed);
  SCOPED_TRACE(p.name);
  expect_right<S>(&kernels::resident::resident_wide<S>, p, seed, std::min<std::int64_t>(clusters, batch));
}

// seq, model, heads, hidden, causal, pre_norm, final_norm, masked, activation
TEST(EmulatedWide, TheSuitesShape) {
  for (const std::uint64_t seed : {1, 2})
    expect_wide_right<WideStack<100, 512, 8, 2048, true, false, false, false, 0>>(1, 2, MaskKind::all_true, seed);
}

TEST(EmulatedWide, SequencesInTurn) {
  expect_wide_right<WideStack<100, 512, 8, 512, true, false, true, false, 0>>(3, 2, MaskKind::all_true, 1, 2);
  expect_wide_right<WideStack<71, 512, 8, 512, false, true, true, false, 1>>(3, 1, MaskKind::all_true, 2, 2);
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    expect_wide_right<WideStack<40, 512, 8, 512, true, false, true, false, 2>>(5, 1, MaskKind::all_true, 20 + seed, 2);
}

TEST(EmulatedWide, EveryMask) {
  std::uint64_t seed = 10;
  for (const MaskKind kind : kMaskKinds) {
    expect_wide_right<WideStack<77, 512, 8, 512, true, true, false, true, 2>>(2, 1, kind, ++seed);
    expect_wide_right<WideStack<104, 512, 8, 512, false, false, false, true, 0>>(1, 2, kind, ++seed);
  }
}

TEST(EmulatedWide, EveryWidthOfProducts) {
  expect_wide_right<WideStack<3, 512, 8, 512, true, false, false, false, 2>>(1, 2, MaskKind::all_true, 1);
  expect_wide_right<WideStack<64, 512, 8, 1024, false, true, false, true, 0>>(1, 1, MaskKind::holes, 2);
  expect_wide_right<WideStack<65, 512, 8, 512, true, true, true, false, 1>>(1, 1, MaskKind::all_true, 3);
  expect_wide_right<WideStack<95, 512, 8, 512, false, false, false, true, 0>>(1, 1, MaskKind::left_padded, 4);
}

// Scores whose exponentials are too large for fp16, or too small.
TEST(EmulatedWide, ScoresThatNeedTheLargest) {
  using S = WideStack<100, 512, 8, 512, true, false, false, false, 0>;
  for (const double powers : {24, -24}) {
    const ResidentProblem p = with_shifted_scores(problem_of(S::c, 1, 1, true), 1, powers);
    SCOPED_TRACE(p.name);
    expect_right<S>(&kernels::resident::resident_wide<S>, p, 1, 1);
  }
}

TEST(EmulatedWide, Flags) {
  using S = WideStack<71, 512, 8, 512, true, true, false, false, 0>;
  expect_flags<S>(&kernels::resident::resident_wide<S>, 1, 40, 4e-3);
}

}  // namespace
}  // namespace gnomon::test
