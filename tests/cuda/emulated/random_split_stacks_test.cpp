// Random stacks on the resident kernel's split form. A stack is drawn when this file is compiled; its weights, input
// and schedule when it runs.
#include "cuda/emulated/resident.hpp"
#include "emulated/resident_split.cuh"

namespace gnomon::test {
namespace {

using kernels::resident::SplitLayout;

constexpr std::uint64_t kDrawnFrom = 20261201;
#if defined(__SANITIZE_ADDRESS__)
constexpr int kStacks = 2;  // each takes the compiler ten seconds
#else
constexpr int kStacks = 8;
#endif

constexpr bool splits(const kernels::resident::Choices& c) {
  const SplitLayout layout(c);
  return layout.rows <= (c.model > 128 ? 64 : 128) && layout.used > c.cluster / 2 && layout.stages >= 2 * c.groups;
}

constexpr RandomStack random_split_stack(int index) {
  ConstantRandom random(kDrawnFrom + 0x632be59bd9b4e019u * static_cast<std::uint64_t>(index));
  for (;;) {
    RandomStack s = random_stack(random.next(), index);
    auto& c = s.choices;
    c.seq = 1 + random.below(250);
    c.model = random.one_of(64, 128, 128, 256);
    c.heads = c.model / random.one_of(16, 32, 64);
    c.hidden = c.model * random.one_of(1, 2, 3);
    c.paired_activation = false;
    c.groups = c.model / 64;
    c.cluster = random.one_of(1, 2, 4, 8);
    s.batch = random.one_of(1, 2, 3);
    s.layers = random.one_of(1, 2);
    if (splits(c)) return s;
  }
}

template <int kIndex>
void expect_stack_right(std::uint64_t seed) {
  static constexpr RandomStack s = random_split_stack(kIndex);
  static constexpr auto& c = s.choices;
  using S = kernels::resident::SplitStack<c.seq, c.model, c.heads, c.hidden, c.causal, c.pre_norm, c.final_norm,
                                          c.masked, static_cast<int>(c.activation), c.cluster>;
  const ResidentProblem p(problem_of(s), s.mask, seed);
  SCOPED_TRACE(fmt::format("{}, split-c{}", p.name, c.cluster));
  expect_right<S>(&kernels::resident::resident_split<S>, p, seed,
                  std::min<std::int64_t>(1 + static_cast<int>(seed % 2), s.batch));
}

TEST(EmulatedSplit, RandomStacks) {
  const std::uint64_t seed = test_seed();
  for_each_index<kStacks>([&]<int kIndex>() { expect_stack_right<kIndex>(seed + kIndex); });
}

}  // namespace
}  // namespace gnomon::test
