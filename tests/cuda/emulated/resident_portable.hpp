// The resident stack's portable form on the emulator.
#pragma once

#include "cuda/emulated/resident.hpp"
#include "emulated/resident_portable.cuh"

namespace gnomon::test {

using kernels::resident::PortableLayout;
using kernels::resident::PortableStack;

// What run_stack launches: a stack with a ring of so many pieces, one CTA to a cluster.
template <typename S, int kPieces>
struct WithRing : S {
  static constexpr int kStages = kPieces;
  static_assert(kPieces % S::l.step == 0 && kPieces >= 3 * S::l.step && kPieces <= 4 * S::l.step);
  struct Launched : PortableLayout {
    int shared_bytes = PortableLayout::shared_bytes(kStages);
  };
  static constexpr Launched l{PortableLayout(S::c)};
};

// `ctas`: fewer than the batch fills give each several rounds.
template <typename S, int kPieces>
void expect_portable_right(std::int64_t batch, std::int64_t layers, MaskKind kind, std::uint64_t seed, int ctas = 1,
                           bool bias = true) {
  const ResidentProblem p(problem_of(S::c, batch, layers, bias), kind, seed);
  SCOPED_TRACE(fmt::format("{}, portable-s{}-w{}{}, {} pieces", p.name, S::c.groups, S::l.step,
                           S::c.paired_activation ? "-paired" : "", kPieces));
  expect_right<WithRing<S, kPieces>>(&kernels::resident::resident_portable<S>, p, seed,
                                     std::min<std::int64_t>(ctas, (batch + S::c.groups - 1) / S::c.groups));
}

}  // namespace gnomon::test
