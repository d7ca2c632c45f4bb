// The resident stack on the emulator, against the float64 oracle.
#include "cuda/emulated/resident.hpp"

#include <numeric>

namespace gnomon::test {
namespace {

using kernels::resident::Stack;

// For each run of a kernel, others in each run of the test; printed.
std::vector<std::uint64_t> seeds() {
  const std::uint64_t first = test_seed();
  std::vector<std::uint64_t> all(static_cast<std::size_t>(test_count(6)));
  std::iota(all.begin(), all.end(), first);
  return all;
}

// seq, model, heads, hidden, causal, pre_norm, final_norm, masked, activation, paired, groups, cluster
TEST(EmulatedResident, OneGroup) {
  for (const std::uint64_t seed : seeds())
    expect_resident_right<Stack<37, 64, 2, 128, true, false, false, false, 0, false, 1, 1>>(3, 2, MaskKind::all_true,
                                                                                            seed);
}

TEST(EmulatedResident, TheSuitesShape) {
  for (const std::uint64_t seed : seeds())
    expect_resident_right<Stack<100, 128, 4, 512, true, false, false, false, 0, false, 2, 1>>(1, 2, MaskKind::all_true,
                                                                                              seed);
}

// Scores whose exponentials need a shift: found after all heads, done again.
TEST(EmulatedResident, LargeScores) {
  for (const std::uint64_t seed : seeds()) {
    expect_resident_right<Stack<100, 128, 4, 128, true, false, false, false, 0, false, 2, 1>>(2, 1, MaskKind::all_true,
                                                                                              seed, 1, true, 3);
    expect_resident_right<Stack<60, 64, 2, 64, false, false, false, false, 0, true, 2, 1>>(2, 1, MaskKind::all_true,
                                                                                           seed, 1, true, 3);
  }
}

// Each warpgroup in several rounds, half a layer behind or ahead of the other; 11 steps of hidden units are not
// unrolled.
TEST(EmulatedResident, SeveralRounds) {
  for (const std::uint64_t seed : seeds()) {
    expect_resident_right<Stack<100, 128, 4, 256, true, true, true, true, 1, true, 2, 1>>(5, 3, MaskKind::holes, seed,
                                                                                          2);
    expect_resident_right<Stack<30, 64, 4, 704, false, false, false, false, 0, true, 2, 1>>(7, 2, MaskKind::all_true,
                                                                                            seed, 1);
  }
}

TEST(EmulatedResident, ASequenceOverTwoCtas) {
  for (const std::uint64_t seed : seeds()) {
    expect_resident_right<Stack<101, 128, 4, 256, true, true, true, false, 1, true, 1, 2>>(2, 2, MaskKind::all_true,
                                                                                           seed, 1);
    expect_resident_right<Stack<77, 64, 1, 128, false, false, false, true, 2, false, 1, 2>>(2, 2, MaskKind::holes,
                                                                                            seed);
  }
}

TEST(EmulatedResident, TwoSequencesInACta) {
  for (const std::uint64_t seed : seeds()) {
    expect_resident_right<Stack<61, 64, 4, 128, false, true, false, true, 0, true, 2, 1>>(3, 2, MaskKind::one_empty,
                                                                                          seed, 1);
  }
}

TEST(EmulatedResident, FourSequencesInACluster) {
  for (const std::uint64_t seed : seeds()) {
    expect_resident_right<Stack<64, 64, 2, 64, true, false, true, true, 1, false, 2, 2>>(5, 1, MaskKind::left_padded,
                                                                                         seed, 1);
  }
}

}  // namespace
}  // namespace gnomon::test
