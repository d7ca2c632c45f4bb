// The resident stack's portable form on the emulator, against the float64 oracle.
#include "cuda/emulated/resident_portable.hpp"

namespace gnomon::test {
namespace {

constexpr std::uint64_t kSeeds[] = {1, 2, 3};

// seq, model, heads, hidden, causal, pre_norm, final_norm, masked, activation, paired, sequences, pieces a step; pieces
// of the ring
TEST(EmulatedPortable, OneSequence) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    expect_portable_right<PortableStack<37, 64, 2, 64, true, false, false, false, 0, false, 1, 1>, 4>(
        1, 2, MaskKind::all_true, seed);
  }
}

// With the rings that 99, 163 and 227 KiB hold.
TEST(EmulatedPortable, TheSuitesShape) {
  using Single = PortableStack<100, 128, 4, 512, true, false, false, false, 0, false, 1, 1>;
  using S = PortableStack<100, 128, 4, 512, true, false, false, false, 0, true, 1, 2>;
  static_assert(S::l.pieces_in(99 << 10) == 0 && Single::l.pieces_in(99 << 10) == 3 && S::l.pieces_in(163 << 10) == 8);
  expect_portable_right<Single, 3>(1, 2, MaskKind::all_true, 1);
  expect_portable_right<S, 6>(2, 1, MaskKind::all_true, 2);
  expect_portable_right<S, 8>(1, 2, MaskKind::all_true, 3);
}

TEST(EmulatedPortable, SequencesSideBySideAndInTurn) {
  for (const std::uint64_t seed : kSeeds) {
    expect_portable_right<PortableStack<61, 64, 4, 192, false, true, false, true, 1, true, 2, 1>, 4>(
        5, 1, MaskKind::one_empty, seed, 1);
    expect_portable_right<PortableStack<20, 128, 8, 128, true, true, true, false, 2, false, 4, 2>, 6>(
        7, 3, MaskKind::all_true, seed, 1);
  }
}

TEST(EmulatedPortable, EveryMask) {
  std::uint64_t seed = 10;
  for (const MaskKind kind : kMaskKinds) {
    expect_portable_right<PortableStack<77, 64, 2, 64, true, false, false, true, 1, false, 1, 1>, 3>(2, 2, kind,
                                                                                                     ++seed);
    expect_portable_right<PortableStack<50, 64, 4, 128, false, true, false, true, 0, false, 2, 1>, 4>(2, 1, kind,
                                                                                                      ++seed);
  }
}

TEST(EmulatedPortable, WideHeadsAndLongSequences) {
  for (const std::uint64_t seed : kSeeds) {
    expect_portable_right<PortableStack<67, 128, 1, 128, true, false, true, true, 2, false, 1, 1>, 3>(
        1, 2, MaskKind::left_padded, seed);
    expect_portable_right<PortableStack<128, 128, 2, 128, false, true, false, false, 0, false, 1, 2>, 6>(
        1, 1, MaskKind::all_true, seed);
    expect_portable_right<PortableStack<185, 64, 1, 64, true, false, false, true, 0, false, 1, 1>, 4>(
        1, 2, MaskKind::holes, seed);
  }
}

TEST(EmulatedPortable, Flags) {
  using S = PortableStack<40, 64, 4, 128, true, true, false, false, 0, false, 2, 1>;
  expect_flags<WithRing<S, 3>>(&kernels::resident::resident_portable<S>, 2, 30, 2e-3);
}

}  // namespace
}  // namespace gnomon::test
