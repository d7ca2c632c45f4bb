// Stacks in the resident kernel's range, with a form that can run them: drawn while the emulator's tests are compiled,
// and while the device's run.
#pragma once

#include <cstdint>

#include "core/problem.hpp"
#include "cuda/kernels/resident_layout.cuh"
#include "support/tensors.hpp"

namespace gnomon::test {

struct RandomStack {
  kernels::resident::Choices choices{};
  bool bias = true;
  int batch = 1, layers = 1;
  MaskKind mask = MaskKind::all_true;
};

class ConstantRandom {  // splitmix64
 public:
  constexpr explicit ConstantRandom(std::uint64_t seed) : state_(seed) {}
  constexpr std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  constexpr int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  template <typename... T>
  constexpr int one_of(T... values) {
    const int list[] = {values...};
    return list[below(sizeof...(values))];
  }

 private:
  std::uint64_t state_;
};

// What Stack asserts of a form.
constexpr bool runs(const kernels::resident::Choices& c) {
  const int tiles = (c.seq + 63) / 64;
  if (c.cluster * c.groups % tiles != 0 || (c.groups % tiles != 0 && c.groups != 1)) return false;
  return kernels::resident::Layout(c).stages >= 4;
}

// Mostly odd lengths. A form that cannot run the stack is drawn again.
constexpr RandomStack random_stack(std::uint64_t seed, int index) {
  ConstantRandom random(seed + 0x632be59bd9b4e019u * static_cast<std::uint64_t>(index));
  for (;;) {
    RandomStack s;
    auto& c = s.choices;
    c.seq = 1 + (random.below(4) == 0 ? random.below(128) : 2 * random.below(64));
    c.model = random.one_of(64, 128);
    c.heads = c.model / random.one_of(16, 32, 64);
    c.hidden = c.model * random.one_of(1, 2, 4, 5);
    c.causal = random.below(2) == 0;
    c.pre_norm = random.below(2) == 0;
    c.final_norm = random.below(2) == 0;
    c.masked = random.below(2) == 0;
    c.activation = static_cast<kernels::resident::Activation>(random.below(3));
    c.paired_activation = c.activation != kernels::resident::Activation::relu && random.below(2) == 0;
    c.groups = random.one_of(1, 2);
    c.cluster = random.one_of(1, 2);
    s.bias = random.below(4) != 0;
    s.batch = random.one_of(1, 2, 3, 5);
    s.layers = random.one_of(1, 2, 3);
    s.mask = kMaskKinds[random.below(static_cast<int>(std::size(kMaskKinds)))];
    if (runs(c)) return s;
  }
}

// Of what a kernel is compiled for, the problem.
inline Problem problem_of(const kernels::resident::Choices& c, std::int64_t batch, std::int64_t layers,
                          bool bias = true) {
  using Device = kernels::resident::Activation;
  Problem problem;
  problem.batch = batch;
  problem.seq = c.seq;
  problem.mask = c.masked;
  problem.config = {.layers = layers,
                    .d_model = c.model,
                    .n_heads = c.heads,
                    .d_ff = c.hidden,
                    .norm = c.pre_norm ? NormPlacement::pre : NormPlacement::post,
                    .final_norm = c.final_norm,
                    .activation = c.activation == Device::gelu        ? Activation::gelu_erf
                                  : c.activation == Device::gelu_tanh ? Activation::gelu_tanh
                                                                      : Activation::relu,
                    .causal = c.causal,
                    .bias = bias};
  return problem;
}
inline Problem problem_of(const RandomStack& s) { return problem_of(s.choices, s.batch, s.layers, s.bias); }

}  // namespace gnomon::test
