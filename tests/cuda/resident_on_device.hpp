// A run of the resident kernel on a device: right, twice the same bits, nothing written beside the output.
#pragma once

#include <cstring>
#include <functional>
#include <initializer_list>
#include <vector>

#include "cuda/on_device.hpp"
#include "cuda/resident.hpp"
#include "cuda/resident_problem.hpp"

namespace gnomon::test {

inline cuda::ResidentSpec spec_of(const Problem& problem) {
  return {problem.config, problem.batch, problem.seq, problem.mask};
}

// For what is decided without a device.
inline cuda::DeviceProperties hopper() {
  cuda::DeviceProperties p;
  p.major = 9, p.multiprocessors = 132, p.max_shared_bytes = 232448;
  p.clock_hz = 1.98e9, p.memory_bytes_per_second = 4.8e12;
  p.l2_bytes = std::int64_t{60} << 20, p.total_bytes = std::int64_t{140} << 30;
  return p;
}

template <typename T>
T one_of(Rng& rng, std::initializer_list<T> values) {
  return values.begin()[rng() % values.size()];
}

struct DrawnStack {
  Problem problem;
  MaskKind kind;
  std::uint64_t seed;
};

// For the forms whose weights are blocks of d_model. Batch and length are drawn by the caller.
inline DrawnStack draw_stack(Rng& rng, std::int64_t batch, std::int64_t seq,
                             std::initializer_list<std::int64_t> widths) {
  DrawnStack drawn;
  Problem& problem = drawn.problem;
  problem.batch = batch;
  problem.seq = seq;
  StackConfig& c = problem.config;
  c.d_model = one_of(rng, widths);
  c.n_heads = c.d_model / one_of<std::int64_t>(rng, {16, 32, 64});
  c.d_ff = c.d_model * one_of<std::int64_t>(rng, {1, 2, 4});
  c.layers = one_of<std::int64_t>(rng, {1, 2, 3});
  c.norm = one_of(rng, {NormPlacement::post, NormPlacement::pre});
  c.final_norm = one_of(rng, {false, true});
  c.causal = one_of(rng, {false, true});
  c.bias = one_of(rng, {false, true});
  c.activation = one_of(rng, {Activation::gelu_erf, Activation::gelu_tanh, Activation::relu});
  problem.mask = one_of(rng, {false, true});
  drawn.kind = kMaskKinds[rng() % std::size(kMaskKinds)];
  drawn.seed = rng();
  return drawn;
}

class ResidentOnDevice : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) return;
    if (properties().major != 9) GTEST_SKIP() << "no Hopper: " << properties().name;
  }

  using Change = std::function<void(cuda::Launch<kernels::resident::Call>&)>;

  // `change`: of each launch, before it is given its tensors.
  static void expect_right(const Problem& problem, MaskKind kind, std::uint64_t seed,
                           const std::vector<cuda::ResidentForm>& forms, const Change& change = {}, float size = 1) {
    EXPECT_FALSE(forms.empty());
    const ResidentProblem p(problem, kind, seed, size);
    SCOPED_TRACE(p.name);
    DeviceBytes mask(problem.tokens());
    if (!p.mask.empty()) mask.upload(p.mask.data());
    const TestTensor output(p.shape);
    cuda::DeviceWeights on_device(p.weights);
    const cuda::ResidentWeights packed(library(), problem.config, on_device.layout(),
                                       on_device.copy(DType::f32, library(), nullptr), nullptr);
    for (const cuda::ResidentForm& form : forms) {
      auto launch = cuda::resident(library(), spec_of(problem), form, packed);
      if (change) change(launch);
      const DeviceTensor from(p.input);
      std::vector<double> results[2];
      for (std::vector<double>& result : results) {
        const DeviceTensor to(output);
        launch.params.input = static_cast<const float*>(from.view().data);
        launch.params.output = static_cast<float*>(to.view().data);
        launch.params.mask.data = p.mask.empty() ? nullptr : mask.data<std::uint8_t>();
        launch.run(nullptr);
        synchronize();
        bool rest_intact = false;
        result = to.values(output, &rest_intact);
        EXPECT_TRUE(rest_intact) << form.to_string() << " wrote outside the output";
      }
      EXPECT_TRUE(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(double)) == 0)
          << form.to_string() << ": two runs differ";
      p.expect_right(results[0], form.to_string());
    }
  }
};

}  // namespace gnomon::test
