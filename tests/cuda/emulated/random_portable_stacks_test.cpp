// Random stacks on the resident kernel's portable form. A stack is drawn when this file is compiled; its weights, input
// and schedule when it runs.
#include "cuda/emulated/resident_portable.hpp"

namespace gnomon::test {
namespace {

constexpr std::uint64_t kDrawnFrom = 20261130;
#if defined(__SANITIZE_ADDRESS__)
constexpr int kStacks = 4;
#else
constexpr int kStacks = 12;
#endif

struct PortableCase {
  RandomStack stack;
  int pieces = 3;  // of the ring
};

constexpr PortableCase random_portable_stack(int index) {
  ConstantRandom random(kDrawnFrom + 0x632be59bd9b4e019u * static_cast<std::uint64_t>(index));
  for (;;) {
    PortableCase one{random_stack(random.next(), index), random.one_of(3, 4)};
    auto& c = one.stack.choices;
    c.seq = 1 + random.below(160);
    c.heads = c.model / random.one_of(16, 32, 64, 64);
    c.groups = random.one_of(1, 1, 2, 4);
    c.cluster = c.model == 64 ? 1 : random.one_of(1, 2);
    one.pieces *= c.cluster;
    const PortableLayout layout(c);
    if (layout.warps <= kernels::resident::most_portable_warps(c.model) && layout.pieces_in(227 << 10) >= one.pieces)
      return one;
  }
}

template <int kIndex>
void expect_stack_right(std::uint64_t seed) {
  static constexpr PortableCase one = random_portable_stack(kIndex);
  static constexpr auto& c = one.stack.choices;
  expect_portable_right<PortableStack<c.seq, c.model, c.heads, c.hidden, c.causal, c.pre_norm, c.final_norm, c.masked,
                                      static_cast<int>(c.activation), c.paired_activation, c.groups, c.cluster>,
                        one.pieces>(one.stack.batch, one.stack.layers, one.stack.mask, seed,
                                    1 + static_cast<int>(seed % 2), one.stack.bias);
}

TEST(EmulatedPortable, RandomStacks) {
  const std::uint64_t seed = test_seed();
  for_each_index<kStacks>([&]<int kIndex>() { expect_stack_right<kIndex>(seed + kIndex); });
}

}  // namespace
}  // namespace gnomon::test
