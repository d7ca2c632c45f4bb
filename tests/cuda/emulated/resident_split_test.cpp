// The resident stack's split form on the emulator, against the float64 oracle.
#include "emulated/resident_split.cuh"

#include "cuda/emulated/resident.hpp"
#include "cuda/shifted_scores.hpp"

namespace gnomon::test {
namespace {

using kernels::resident::SplitStack;

template <typename S>
void expect_split_right(std::int64_t batch, std::int64_t layers, MaskKind kind, std::uint64_t seed, int clusters = 1) {
  const ResidentProblem p(problem_of(S::c, batch, layers, true), kind, seed);
  SCOPED_TRACE(fmt::format("{}, split-c{}", p.name, S::c.cluster));
  expect_right<S>(&kernels::resident::resident_split<S>, p, seed, std::min<std::int64_t>(clusters, batch));
}

constexpr std::uint64_t kSeeds[] = {1, 2, 3};

// seq, model, heads, hidden, causal, pre_norm, final_norm, masked, activation, cluster
TEST(EmulatedSplit, OneCta) {
  for (const std::uint64_t seed : kSeeds) {
    expect_split_right<SplitStack<37, 64, 2, 128, true, false, false, false, 0, 1>>(2, 2, MaskKind::all_true, seed);
    expect_split_right<SplitStack<100, 128, 8, 256, false, true, true, true, 1, 1>>(1, 1, MaskKind::holes, seed);
  }
}

TEST(EmulatedSplit, TheSuitesShape) {
  expect_split_right<SplitStack<100, 128, 4, 512, true, false, false, false, 0, 2>>(1, 2, MaskKind::all_true, 1);
  expect_split_right<SplitStack<100, 128, 4, 512, true, false, false, false, 0, 4>>(1, 2, MaskKind::all_true, 2);
  for (const std::uint64_t seed : kSeeds)
    expect_split_right<SplitStack<100, 128, 4, 512, true, false, false, false, 0, 8>>(1, 3, MaskKind::all_true, seed);
}

TEST(EmulatedSplit, ThreeSequencesOverTwoClusters) {
  for (const std::uint64_t seed : kSeeds) {
    expect_split_right<SplitStack<61, 64, 4, 64, true, true, false, false, 0, 4>>(3, 2, MaskKind::all_true, seed, 2);
    expect_split_right<SplitStack<61, 64, 1, 192, false, false, true, true, 2, 2>>(3, 2, MaskKind::one_empty, seed, 2);
  }
}

TEST(EmulatedSplit, EveryMask) {
  std::uint64_t seed = 10;
  for (const MaskKind kind : kMaskKinds) {
    expect_split_right<SplitStack<77, 64, 2, 128, true, false, false, true, 1, 2>>(2, 2, kind, ++seed);
    expect_split_right<SplitStack<113, 64, 4, 128, false, true, false, true, 0, 8>>(2, 1, kind, ++seed);
  }
}

TEST(EmulatedSplit, WideHeadsAndLongSequences) {
  for (const std::uint64_t seed : kSeeds) {
    expect_split_right<SplitStack<67, 128, 1, 128, true, false, true, true, 2, 2>>(1, 2, MaskKind::left_padded, seed);
    expect_split_right<SplitStack<201, 128, 2, 128, true, true, false, false, 1, 4>>(1, 2, MaskKind::all_true, seed);
    expect_split_right<SplitStack<250, 64, 4, 64, false, false, false, true, 0, 8>>(1, 2, MaskKind::holes, seed);
  }
}

// Scores whose exponentials are too large for fp16, or too small.
TEST(EmulatedSplit, ScoresThatNeedTheLargest) {
  const auto expect_shifted_right = []<typename S>(S*, double powers) {
    const ResidentProblem p = with_shifted_scores(problem_of(S::c, 1, 1, true), 1, powers);
    SCOPED_TRACE(fmt::format("{}, split-c{}", p.name, S::c.cluster));
    expect_right<S>(&kernels::resident::resident_split<S>, p, 1, 1);
  };
  using Shared = SplitStack<100, 128, 4, 128, true, false, false, false, 0, 8>;
  using Together = SplitStack<90, 64, 2, 64, false, true, false, false, 2, 2>;
  using Wide = SplitStack<70, 256, 4, 256, true, false, false, false, 0, 2>;
  static_assert(Shared::l.share_keys && Together::l.tiles_together == 2 && Wide::l.key_block != Wide::l.plain_block);
  for (const double powers : {24, -24}) {
    expect_shifted_right(static_cast<Shared*>(nullptr), powers);
    expect_shifted_right(static_cast<Together*>(nullptr), powers);
    expect_shifted_right(static_cast<Wide*>(nullptr), powers);
  }
}

// What depends on how many tiles, warps and chunks there are.
TEST(EmulatedSplit, SharedKeysTilesTogetherAndManyChunks) {
  using Shared = SplitStack<100, 128, 1, 128, true, false, false, true, 0, 8>;  // keys of a head of both warpgroups
  using Together = SplitStack<90, 64, 2, 256, false, true, false, true, 2, 2>;  // an odd number of tiles
  using Many = SplitStack<61, 64, 1, 640, true, false, true, false, 1, 4>;      // no room for a layer's vectors ahead
  static_assert(Shared::l.share_keys && Shared::l.attending == 8);
  static_assert(Together::l.tiles_together == 2 && Together::l.rows / 16 % 2 != 0);
  static_assert(Many::l.whole_hidden && Many::l.known_stages && !Many::l.vectors_ahead);
  for (const std::uint64_t seed : kSeeds) {
    expect_split_right<Shared>(2, 2, MaskKind::holes, seed);
    expect_split_right<Together>(2, 2, MaskKind::left_padded, seed);
    expect_split_right<Many>(2, 2, MaskKind::all_true, seed);
  }
}

// A pair of CTAs for each sixteen tokens: each has half of the heads and of the hidden units.
TEST(EmulatedSplit, Halves) {
  using Suites = SplitStack<100, 128, 4, 512, true, false, false, false, 0, 16>;
  static_assert(Suites::l.halves == 2 && Suites::l.parts == 4);
  for (const std::uint64_t seed : kSeeds) expect_split_right<Suites>(1, 3, MaskKind::all_true, seed);
  for (const std::uint64_t seed : kSeeds) {
    expect_split_right<SplitStack<113, 128, 2, 256, false, true, true, true, 1, 16>>(3, 2, MaskKind::holes, seed, 2);
    expect_split_right<SplitStack<128, 128, 8, 1024, false, false, true, true, 2, 16>>(2, 1, MaskKind::left_padded,
                                                                                       seed);
  }
}

// Hidden units lie over K and V.
TEST(EmulatedSplit, Wide) {
  using Suites = SplitStack<100, 256, 4, 1024, true, false, false, false, 0, 2>;
  using Both = SplitStack<100, 256, 8, 512, false, true, false, false, 0, 2>;
  static_assert(Suites::l.hidden_over_keys && Suites::l.more_stages > 0 && Both::l.more_stages > 0);
  expect_split_right<Suites>(1, 1, MaskKind::all_true, 1);
  for (const std::uint64_t seed : {1, 2}) expect_split_right<Both>(2, 2, MaskKind::all_true, seed);
  for (const std::uint64_t seed : kSeeds) {
    expect_split_right<SplitStack<70, 256, 4, 512, true, false, false, false, 0, 2>>(2, 2, MaskKind::all_true, seed);
    expect_split_right<SplitStack<111, 256, 16, 256, false, true, false, true, 1, 2>>(2, 2, MaskKind::holes, seed);
    expect_split_right<SplitStack<100, 256, 8, 256, true, true, true, true, 2, 4>>(1, 2, MaskKind::left_padded, seed);
  }
}

TEST(EmulatedSplit, Flags) {
  using S = SplitStack<61, 64, 4, 128, true, true, false, false, 0, 4>;
  expect_flags<S>(&kernels::resident::resident_split<S>, 2, 40, 2e-3);
}

}  // namespace
}  // namespace gnomon::test
