// Random stacks on the resident kernel. A stack is drawn when this file is compiled; its weights, input and schedule
// when it runs.
#include "cuda/emulated/resident.hpp"

namespace gnomon::test {
namespace {

constexpr std::uint64_t kDrawnFrom = 20261130;
#if defined(__SANITIZE_ADDRESS__)
constexpr int kStacks = 5;  // each takes the compiler ten seconds
#else
constexpr int kStacks = 16;
#endif

template <int kIndex>
void expect_stack_right(std::uint64_t seed) {
  static constexpr RandomStack s = random_stack(kDrawnFrom, kIndex);
  static constexpr auto& c = s.choices;
  expect_resident_right<
      kernels::resident::Stack<c.seq, c.model, c.heads, c.hidden, c.causal, c.pre_norm, c.final_norm, c.masked,
                               static_cast<int>(c.activation), c.paired_activation, c.groups, c.cluster>>(
      s.batch, s.layers, s.mask, seed, 1 + static_cast<int>(seed % 2), s.bias);
}

TEST(EmulatedResident, RandomStacks) {
  const std::uint64_t seed = test_seed();
  for_each_index<kStacks>([&]<int kIndex>() { expect_stack_right<kIndex>(seed + kIndex); });
}

}  // namespace
}  // namespace gnomon::test
