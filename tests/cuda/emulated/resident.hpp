// The resident stack on the emulator: a Stack type says the problem, which is packed, run and judged.
#pragma once

#include <limits>

#include "cuda/emulator/emulate.hpp"
#include "cuda/random_stacks.hpp"
#include "cuda/resident_problem.hpp"
#include "emulated/resident.cuh"
#include "emulated/resident_pack.cuh"

namespace gnomon::test {

// f.operator()<0>(), ... <kCount - 1>().
template <int kCount, typename F>
void for_each_index(const F& f) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) { (f.template operator()<kIndex>(), ...); }
  (std::make_integer_sequence<int, kCount>());
}

struct PackedWeights {
  std::vector<std::uint32_t> tiles;
  std::vector<float> vectors;
};

template <typename S>
PackedWeights pack(const Weights& weights, std::uint64_t seed) {
  constexpr std::size_t kWords = std::size_t{S::l.layer_tiles} * S::l.tile_bytes / 4;
  PackedWeights packed{std::vector<std::uint32_t>(weights.layers().size() * kWords, ~0u),
                       std::vector<float>(weights.layers().size() * S::l.layer_floats, NAN)};
  std::size_t i = 0;
  for (const LayerWeights& layer : weights.layers()) {
    const auto data = [](std::span<const float> values) { return values.empty() ? nullptr : values.data(); };
    const kernels::resident::PackLayer params{
        .q = data(layer.q_proj.weight),
        .k = data(layer.k_proj.weight),
        .v = data(layer.v_proj.weight),
        .o = data(layer.out_proj.weight),
        .w1 = data(layer.fc1.weight),
        .w2 = data(layer.fc2.weight),
        .bias_q = data(layer.q_proj.bias),
        .bias_k = data(layer.k_proj.bias),
        .bias_v = data(layer.v_proj.bias),
        .bias_o = data(layer.out_proj.bias),
        .bias_1 = data(layer.fc1.bias),
        .bias_2 = data(layer.fc2.bias),
        .gain1 = data(layer.norm1.weight),
        .shift1 = data(layer.norm1.bias),
        .gain2 = data(layer.norm2.weight),
        .shift2 = data(layer.norm2.bias),
        .tiles = packed.tiles.data() + i * kWords,
        .vectors = packed.vectors.data() + i * S::l.layer_floats,
    };
    emulator::emulate(&kernels::resident::pack_layer<S>, {.blocks = 3, .threads = 256}, seed, params);
    ++i;
  }
  return packed;
}

struct Outcome {
  std::vector<float> output;
  kernels::u32 flags = 0;
  emulator::Report report;
};

// Of the portable form's ring.
template <typename S>
constexpr int stages_of() {
  if constexpr (requires { S::kStages; }) return S::kStages;
  return 0;
}

// `clusters`: of the grid. `range`: {least, greatest} root mean square of an input row, or null.
template <typename S>
Outcome run_stack(void (*kernel)(kernels::resident::Call), const ResidentProblem& p, std::uint64_t seed,
                  std::int64_t clusters, const float* range) {
  const PackedWeights packed = pack<S>(*p.weights, seed);
  const std::int64_t width = S::c.model;
  const NormWeights* const last = p.weights->final_norm();
  Outcome outcome{.output = std::vector<float>(p.expected.size(), NAN)};
  const kernels::resident::Call call{
      .input = static_cast<const float*>(p.input.view().data),
      .output = outcome.output.data(),
      .input_sequence = S::c.seq * width,
      .input_token = width,
      .output_sequence = S::c.seq * width,
      .output_token = width,
      .mask = {p.mask.empty() ? nullptr : p.mask.data(), S::c.seq, S::c.seq, 1},
      .weights = packed.tiles.data(),
      .vectors = packed.vectors.data(),
      .final_gain = last ? last->weight.data() : nullptr,
      .final_shift = last && !last->bias.empty() ? last->bias.data() : nullptr,
      .range = range,
      .flags = &outcome.flags,
      .batch = static_cast<kernels::i32>(p.problem.batch),
      .layers = static_cast<kernels::i32>(p.problem.config.layers),
      .eps = 1e-5f,
      .stages = stages_of<S>(),
  };
  outcome.report = emulator::emulate(kernel,
                                     {.blocks = clusters * S::c.cluster,
                                      .threads = S::l.threads,
                                      .dynamic_shared_bytes = S::l.shared_bytes,
                                      .cluster = S::c.cluster},
                                     seed, call);
  return outcome;
}

template <typename S>
void expect_right(void (*kernel)(kernels::resident::Call), const ResidentProblem& p, std::uint64_t seed,
                  std::int64_t clusters) {
  const float range[] = {0, 1e30f};
  const bool finite = p.mask.empty();  // masked tokens hold NaN, which is outside any range
  const Outcome o = run_stack<S>(kernel, p, seed, clusters, finite ? range : nullptr);
  p.expect_right({o.output.begin(), o.output.end()},
                 fmt::format("the emulator ({} reads of what is not published; {})", o.report.unpublished_reads,
                             o.report.first_unpublished_read));
  if (finite) {
    EXPECT_EQ(o.flags, 0u);
  }
}

// `clusters`: fewer than the batch fills give each several rounds.
template <typename S>
void expect_resident_right(std::int64_t batch, std::int64_t layers, MaskKind kind, std::uint64_t seed, int clusters = 2,
                           bool bias = true, float size = 1) {
  const ResidentProblem p(problem_of(S::c, batch, layers, bias), kind, seed, size);
  SCOPED_TRACE(
      fmt::format("{}, g{}-c{}{}", p.name, S::c.groups, S::c.cluster, S::c.paired_activation ? "-paired" : ""));
  const std::int64_t filled = (batch + S::l.sequences - 1) / S::l.sequences;
  expect_right<S>(&kernels::resident::resident_stack<S>, p, seed, std::min<std::int64_t>(clusters, filled));
}

// A row outside the range, or NaN in a sequence, is told; and NaN stays in its sequence, which others share a block or
// a cluster with before and after. `S`: the stack, or what run_stack takes in its place.
template <typename S>
void expect_flags(void (*kernel)(kernels::resident::Call), std::int64_t layers, std::size_t bad_token, double bound) {
  ResidentProblem p(problem_of(S::c, 3, layers), MaskKind::all_true, 1);
  const auto run = [&](float least, float greatest) {
    const float range[] = {least, greatest};
    return run_stack<S>(kernel, p, 1, 1, range);
  };
  EXPECT_EQ(run(0.5f, 1.5f).flags, 0u);
  EXPECT_EQ(run(0.5f, 1.0f).flags, kernels::kOutsideRange);
  EXPECT_EQ(run(1.0f, 1.5f).flags, kernels::kOutsideRange);

  set_value(p.input.view(), 1, static_cast<std::int64_t>(bad_token), 7, std::numeric_limits<double>::quiet_NaN());
  const Outcome o = run(0.5f, 1.5f);
  EXPECT_EQ(o.flags, kernels::kOutsideRange | kernels::kOutputNotFinite);
  constexpr std::size_t kModel = S::c.model, kSeq = S::c.seq;
  for (std::size_t i = 0; i < o.output.size(); ++i) {
    const std::size_t sequence = i / (kSeq * kModel), token = i / kModel % kSeq;
    if (sequence != 1) {
      ASSERT_NEAR(o.output[i], p.expected[i], bound) << sequence << ", " << token;
    } else if (token == bad_token) {
      ASSERT_TRUE(std::isnan(o.output[i]));
    }
  }
}

}  // namespace gnomon::test
