// What the CUDA backend's tests share: problems with their true answers, on a device.
#pragma once

#include <gtest/gtest.h>

#include <thread>

#include "core/expect_error.hpp"
#include "cuda/cuda_backend.hpp"
#include "cuda/device_buffer.hpp"
#include "cuda/on_device.hpp"
#include "cuda/search_space.hpp"
#include "support/oracle.hpp"

namespace gnomon::test {

// A problem with weights, an input, and its true answer.
struct Posed {
  Posed(const std::string& text, std::uint64_t seed, MaskKind kind = MaskKind::holes, Layout in = Layout::contiguous,
        Layout out = Layout::contiguous, double scale = 1)
      : problem(parse_problem(text)),
        rng(seed),
        weights(std::make_shared<const Weights>(Weights::random(problem.config, seed))),
        shape{problem.batch, problem.seq, problem.config.d_model},
        input(shape, problem.dtype, in),
        output(shape, problem.dtype, problem.inplace ? in : out) {
    input.fill_normal(rng, scale);
    std::optional<MaskView> view;
    if (problem.mask) {
      mask.emplace(problem.batch, problem.seq, kind, rng);
      view = mask->view();
      for (std::int64_t b = 0; b < problem.batch; ++b) {
        for (std::int64_t s = 0; s < problem.seq; ++s) mask_bytes.push_back(mask->valid(b, s));
      }
    }
    expected = oracle(*weights, input.const_view(), view);
  }

  Problem problem;
  Rng rng;
  std::shared_ptr<const Weights> weights;
  std::array<std::int64_t, 3> shape;
  TestTensor input, output;
  std::optional<TestMask> mask;
  std::vector<std::uint8_t> mask_bytes;
  std::vector<double> expected;
};

// Its tensors on the device.
struct OnCard {
  explicit OnCard(const Posed& posed)
      : problem(posed.problem), input(posed.input), output(posed.output), mask(posed.problem.tokens()) {
    if (problem.mask) mask.upload(posed.mask_bytes.data());
  }
  Call call() {
    Call call;
    call.input = input.const_view();
    call.output = problem.inplace ? input.view() : output.view();
    if (problem.mask) call.mask = MaskView{mask.data<std::uint8_t>(), {problem.batch, problem.seq}, {problem.seq, 1}};
    return call;
  }
  Verdict judge(const Posed& posed) {
    bool rest = false;
    const std::vector<double> got =
        (problem.inplace ? input : output).values(problem.inplace ? posed.input : posed.output, &rest);
    Verdict verdict =
        compare(ConstTensorView::contiguous(got.data(), DType::f64, posed.shape),
                ConstTensorView::contiguous(posed.expected.data(), DType::f64, posed.shape), problem.contract);
    if (!rest) verdict.fault = "wrote outside the output";
    return verdict;
  }

  Problem problem;
  DeviceTensor input, output;
  DeviceBytes mask;
};

inline std::string describe(const Verdict& v) {
  return fmt::format("worst {:.3g}, {} of {} out, element {} is {:g}, expected {:g} {}", v.worst, v.out_of_contract,
                     v.elements, v.first_bad, v.bad_value, v.bad_reference, v.fault);
}

class CudaBackendTest : public OnDevice {
 protected:
  static std::unique_ptr<Backend> backend_for(const Posed& posed) {
    return cuda::make_cuda_backend(0, posed.weights, {});
  }
  // Changes to the stack path's estimate; "path=resident ..." to the resident kernel's.
  static Candidate with(const Posed& posed, Backend& backend, const std::string& changes) {
    const Candidate base = changes.starts_with("path=resident")
                               ? backend.estimate(posed.problem, {})
                               : to_candidate(cuda::estimate_stack(posed.problem, {}, properties()));
    return base.with(Candidate::parse(changes).choices());
  }
  // Twice: the second time a captured plan is replayed, on other tensors.
  static void expect_right(Posed& posed, const std::string& changes, double limit = 1) {
    SCOPED_TRACE(to_string(posed.problem) + " with " + changes);
    const auto backend = backend_for(posed);
    const Candidate candidate = with(posed, *backend, changes);
    if (const auto refusal = backend->refuses(posed.problem, {}, candidate)) {
      ADD_FAILURE() << "refused: " << refusal->reason;
      return;
    }
    const auto plan = backend->prepare(posed.problem, candidate);
    for (int round = 0; round < 3; ++round) {
      OnCard card(posed);
      plan->poison_scratch();
      plan->run(card.call());
      synchronize();
      const Verdict verdict = card.judge(posed);
      EXPECT_TRUE(verdict.fault.empty() && verdict.worst <= limit) << "round " << round << ": " << describe(verdict);
    }
  }

  // Four threads with streams of their own, on a plan that is a graph and on one that is launches.
  static void expect_shared_by_threads(Posed& posed, const std::string& changes) {
    const auto backend = backend_for(posed);
    const auto graph = backend->prepare(posed.problem, with(posed, *backend, changes + " graph=on"));
    const auto launches = backend->prepare(posed.problem, with(posed, *backend, changes + " graph=off"));
    std::vector<std::thread> threads;
    std::vector<std::string> faults(4);
    for (std::size_t t = 0; t < faults.size(); ++t) {
      threads.emplace_back([&, t] {
        const cuda::Device::Current current(*device());
        const cuda::Stream stream;
        for (int round = 0; round < 20; ++round) {
          OnCard card(posed);
          Call call = card.call();
          call.stream = stream;
          ((t + static_cast<std::size_t>(round)) % 2 ? graph : launches)->run(call);
          stream.synchronize();
          const Verdict verdict = card.judge(posed);
          if (!verdict.fault.empty() || verdict.worst > 1) faults[t] = describe(verdict);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& fault : faults) EXPECT_EQ(fault, "");
  }
};

inline constexpr const char* kPlain =
    "path=plain precision=fp32 fused_attention=off tile=first causal_skip=off mask_elision=off fused_qkv=off "
    "fused_norm=off gemm_gelu=off graph=off slices=all";
inline constexpr const char* kFormula =
    "precision=fp32 fused_attention=off tile=first causal_skip=off mask_elision=off fused_qkv=off gemm_gelu=off";

}  // namespace gnomon::test
