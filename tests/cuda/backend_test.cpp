// The CUDA backend on a device: every candidate against the float64 oracle, whatever the layout, mask and type.
#include <gtest/gtest.h>

#include <thread>

#include "core/expect_error.hpp"
#include "cuda/cuda_backend.hpp"
#include "cuda/device_buffer.hpp"
#include "cuda/on_device.hpp"
#include "cuda/search_space.hpp"
#include "plan/planner.hpp"
#include "support/oracle.hpp"

namespace gnomon::test {
namespace {

using cuda::Choices;
using cuda::Precision;

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

std::string describe(const Verdict& v) {
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
};

constexpr const char* kPlain =
    "path=plain precision=fp32 fused_attention=off tile=first causal_skip=off mask_elision=off fused_qkv=off "
    "fused_norm=off gemm_gelu=off graph=off slices=all";
constexpr const char* kFormula =
    "precision=fp32 fused_attention=off tile=first causal_skip=off mask_elision=off fused_qkv=off gemm_gelu=off";

TEST_F(CudaBackendTest, PlainPathIsExact) {
  for (const char* text :
       {"b3 s10 d64 h4 l2 f128", "b2 s17 d64 h4 l2 f96 bi mask", "b2 s9 d32 h2 l2 f64 pre finalnorm mask",
        "b2 s5 d48 h3 l1 f13 relu nobias bi", "b1 s1 d16 h1 l1 f16", "b2 s7 d20 h4 l2 f24 gelu_tanh"}) {
    Posed posed(text, 1);
    expect_right(posed, kPlain, 0.05);
  }
}

TEST_F(CudaBackendTest, StackInFp32IsExact) {
  for (const char* text :
       {"b3 s10 d64 h4 l2 f128", "b2 s17 d64 h4 l2 f96 bi mask", "b2 s9 d32 h2 l2 f64 pre finalnorm mask",
        "b2 s9 d32 h2 l2 f64 post finalnorm mask inplace", "b4 s33 d128 h4 l3 f512 pre"}) {
    Posed posed(text, 2);
    expect_right(posed, kFormula, 0.05);
    expect_right(posed, std::string(kFormula) + " fused_norm=off", 0.05);
    expect_right(posed, std::string(kFormula) + " graph=off slices=1", 0.05);
    expect_right(posed, std::string(kFormula) + " graph=on slices=1", 0.05);
  }
}

TEST_F(CudaBackendTest, StackInReducedPrecisionMeetsTheContract) {
  for (const char* text :
       {"b4 s100 d128 h4 l3 f512", "b3 s40 d128 h4 l2 f512 bi mask", "b2 s33 d256 h4 l2 f512 pre finalnorm mask",
        "b2 s64 d128 h2 l2 f256 relu", "b2 s20 d128 h4 l2 f512 gelu_tanh f16", "b2 s20 d128 h4 l2 f512 bf16",
        "b3 s20 d128 h4 l2 f512 inplace mask", "b2 s20 d128 h4 l2 f512 nobias"}) {
    Posed posed(text, 3);
    for (const char* changes :
         {"precision=fp16 graph=on", "precision=fp16 graph=off gemm_gelu=off", "precision=fp16 fused_norm=off",
          "precision=fp16 fused_qkv=off", "precision=fp16 slices=1 graph=on"})
      expect_right(posed, changes, posed.problem.dtype == DType::bf16 ? 4 : 1);
  }
}

TEST_F(CudaBackendTest, TheResidentKernelMeetsTheContract) {
  if (properties().major != 9) GTEST_SKIP() << "the resident kernel takes compute capability 9.0";
  for (const char* text : {"b4 s100 d128 h4 l3 f512", "b3 s40 d128 h4 l2 f512 bi mask", "b40 s100 d128 h4 l1 f128 mask",
                           "b2 s33 d64 h4 l2 f128 pre finalnorm mask", "b2 s64 d128 h2 l2 f256 relu inplace",
                           "b2 s20 d128 h4 l2 f512 gelu_tanh f16", "b2 s20 d128 h4 l2 f512 nobias inplace f16"}) {
    for (const Layout layout : {Layout::contiguous, Layout::column_slice, Layout::every_other_column}) {
      SCOPED_TRACE(name_of(layout));
      Posed posed(text, 20, MaskKind::holes, layout, layout);
      for (const char* changes :
           {"path=resident graph=on", "path=resident graph=off", "path=resident slices=1 graph=on"})
        expect_right(posed, changes);
    }
  }
}

TEST_F(CudaBackendTest, MasksOfEveryKind) {
  for (const MaskKind kind : kMaskKinds) {
    for (const char* text :
         {"b4 s37 d64 h4 l2 f128 mask", "b4 s37 d64 h4 l2 f128 bi mask", "b3 s130 d64 h2 l2 f128 bi mask"}) {
      SCOPED_TRACE(name_of(kind));
      Posed posed(text, 4, kind);
      expect_right(posed, kPlain, 0.05);
      expect_right(posed, "precision=fp16");
    }
  }
}

TEST_F(CudaBackendTest, LayoutsOfEveryKind) {
  for (const Layout layout : kOwnLayouts) {
    SCOPED_TRACE(name_of(layout));
    for (const char* type : {"f32", "f16"}) {
      Posed posed(std::string("b3 s12 d64 h4 l1 f128 mask ") + type, 5, MaskKind::right_padded, layout, layout);
      expect_right(posed, kPlain, 0.6);
      expect_right(posed, "precision=fp16");
      Posed inplace(std::string("b3 s12 d64 h4 l1 f128 inplace ") + type, 6, MaskKind::holes, layout);
      expect_right(inplace, "precision=fp16");
    }
  }
  Posed broadcast("b3 s12 d64 h4 l1 f128", 7, MaskKind::holes, Layout::broadcast);
  expect_right(broadcast, "precision=fp16");
}

TEST_F(CudaBackendTest, AnInputOutsideTheVerifiedRangeIsAnsweredInFp32) {
  for (const char* text : {"b4 s20 d64 h4 l2 f128", "b4 s20 d64 h4 l2 f128 inplace"}) {
    for (const char* changes : {"precision=fp16 graph=on slices=all", "precision=fp16 graph=off slices=1",
                                "path=resident graph=on", "path=resident graph=off"}) {
      SCOPED_TRACE(std::string(text) + " " + changes);
      if (std::string(changes).starts_with("path=resident") && properties().major != 9) continue;
      Posed usual(text, 8);
      const auto backend = backend_for(usual);
      const auto plan = backend->prepare(usual.problem, with(usual, *backend, changes));
      OnCard card(usual);
      plan->set_verified_range(backend->open_workbench(usual.problem, card.call())->input_range());
      plan->run(card.call());
      EXPECT_LE(card.judge(usual).worst, 1);
      EXPECT_EQ(plan->range_fallbacks(), 0);
      for (const double scale : {10.0, 100.0, 3e4}) {
        Posed large(text, 8, MaskKind::holes, Layout::contiguous, Layout::contiguous, scale);
        OnCard large_card(large);
        const std::int64_t before = plan->range_fallbacks();
        plan->run(large_card.call());
        const Verdict verdict = large_card.judge(large);
        EXPECT_TRUE(verdict.fault.empty() && verdict.worst <= 1) << scale << ": " << describe(verdict);
        EXPECT_GT(plan->range_fallbacks(), before);
      }
    }
  }
}

TEST_F(CudaBackendTest, NanStaysInItsSequence) {
  Posed posed("b3 s12 d64 h4 l2 f128", 9);
  set_value(posed.input.view(), 1, 3, 5, std::nan(""));
  posed.expected = oracle(*posed.weights, posed.input.const_view(), std::nullopt);
  expect_right(posed, kPlain, 0.05);
  expect_right(posed, "precision=fp16");
}

// In parts, so that they can run side by side.
class CudaRandomProblems : public CudaBackendTest, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Parts, CudaRandomProblems, testing::Range(0, 14));

TEST_P(CudaRandomProblems, MeetTheContract) {
  Rng rng(100 + static_cast<std::uint64_t>(GetParam()));
  const auto pick = [&](auto... values) {
    const std::vector<std::common_type_t<decltype(values)...>> all{values...};
    return all[rng() % all.size()];
  };
  int run = 0, refused = 0;
  for (int i = 0; i < 15; ++i) {
    const int dim = pick(4, 7, 8, 13, 16, 20, 26, 32, 48, 64, 72, 80, 128), heads = pick(1, 2, 3, 4);
    std::string text = fmt::format("b{} s{} d{} h{} l{} ff{} {} {} {}", 1 + rng() % 5, 1 + rng() % 70, dim * heads,
                                   heads, pick(1, 2), pick(13, 32, 64, 96, 256), pick("causal", "bi"),
                                   pick("post", "pre"), pick("gelu", "gelu_tanh", "relu"));
    text += pick("", "", " mask") + std::string(pick("", "", " nobias")) + pick("", "", " finalnorm") +
            pick("", "", " f16") + pick("", "", " inplace");
    const Layout in = kOwnLayouts[rng() % std::size(kOwnLayouts)], out = kOwnLayouts[rng() % std::size(kOwnLayouts)];
    Posed posed(text, rng(), kMaskKinds[rng() % std::size(kMaskKinds)], in, out);
    SCOPED_TRACE(fmt::format("{}, input {}, output {}", text, name_of(in), name_of(out)));
    const auto backend = backend_for(posed);
    for (const std::string& changes :
         {std::string(kPlain), std::string(kFormula),
          fmt::format("precision={} graph={} gemm_gelu={} fused_qkv={} fused_norm={}", pick("fp16", "tf32"),
                      pick("on", "off"), pick("on", "off"), pick("on", "off"), pick("on", "off"))}) {
      const Candidate candidate = with(posed, *backend, changes);
      if (backend->refuses(posed.problem, {}, candidate)) {
        ++refused;
        continue;
      }
      std::unique_ptr<Plan> plan;
      try {
        plan = backend->prepare(posed.problem, candidate);
      } catch (const Error& error) {
        ASSERT_EQ(error.kind(), ErrorKind::environment) << error.what();
        ++refused;
        continue;
      }
      OnCard card(posed);
      plan->poison_scratch();
      plan->run(card.call());
      const Verdict verdict = card.judge(posed);
      EXPECT_TRUE(verdict.fault.empty() && verdict.worst <= 1) << changes << ": " << describe(verdict);
      ++run;
    }
  }
  fmt::print("{} candidates run, {} refused\n", run, refused);
  EXPECT_GT(run, 25);
}

TEST_F(CudaBackendTest, ThePlannerPlansAndItsPlanIsRight) {
  Posed posed("b8 s50 d128 h4 l2 f512 mask", 11, MaskKind::right_padded);
  const auto backend = backend_for(posed);
  OnCard card(posed);
  // Kernels are compiled within the budget, ten seconds of it where sixteen tests share the host.
  const PlanResult result = Planner(*backend, steady_clock()).plan(posed.problem, card.call(), {.budget_seconds = 60});
  EXPECT_FALSE(result.record.winner == backend->plain(posed.problem)) << result.record.winner.to_string();
  result.plan->run(card.call());
  EXPECT_LE(card.judge(posed).worst, 1);
}

TEST_F(CudaBackendTest, HugeBatchesAndOneToken) {
  for (const char* text : {"b65537 s4 d16 h2 l1 f16", "b7 s1 d64 h4 l1 f64", "b66000 s1 d16 h1 l1 f16"}) {
    Posed posed(text, 12);
    expect_right(posed, kPlain, 0.1);
    expect_right(posed, "precision=fp16");
  }
}

TEST_F(CudaBackendTest, HostMemoryIsRefused) {
  Posed posed("b2 s5 d64 h4 l1 f64", 13);
  const auto backend = backend_for(posed);
  const auto plan = backend->prepare(posed.problem, backend->plain(posed.problem));
  OnCard card(posed);
  Call call = card.call();
  call.input = posed.input.const_view();
  expect_error(ErrorKind::caller, "input: expected memory of cuda:0", [&] { plan->run(call); });
}

// An outer capture: the call's launches join it, and replays answer for whatever the tensors then hold.
TEST_F(CudaBackendTest, JoinsAnOuterCapture) {
  for (const char* changes : {"precision=fp16 graph=on", "precision=fp16 graph=off slices=2"}) {
    for (const char* text : {"b5 s20 d64 h4 l2 f128 mask", "b5 s20 d64 h4 l2 f128 inplace"}) {
      SCOPED_TRACE(std::string(text) + " " + changes);
      Posed first(text, 15), second(text, 16);
      const auto backend = cuda::make_cuda_backend(0, first.weights, {});
      const auto plan = backend->prepare(first.problem, with(first, *backend, changes));
      const cuda::Stream stream;
      OnCard card(first);
      Call call = card.call();
      call.stream = stream;
      cuda::check(cuda::driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
      expect_error(ErrorKind::caller, "its stream is being captured", [&] { backend->require_time_to_plan(call); });
      plan->run(call);
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      cuda::check(cuda::driver().cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
      cuda::check(cuda::driver().cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiate");
      for (Posed* posed : {&first, &second}) {
        posed->expected = posed == &first
                              ? first.expected
                              : oracle(*first.weights, second.input.const_view(),
                                       first.problem.mask ? std::optional(first.mask->view()) : std::nullopt);
        card.input.upload(posed->input);
        cuda::check(cuda::driver().cuGraphLaunch(exec, stream), "cuGraphLaunch");
        stream.synchronize();
        const Verdict verdict = card.judge(*posed);
        EXPECT_TRUE(verdict.fault.empty() && verdict.worst <= 0.05) << describe(verdict);  // the exact pass
      }
      cuda::driver().cuGraphExecDestroy(exec);
      cuda::driver().cuGraphDestroy(graph);
    }
  }
}

TEST_F(CudaBackendTest, StreamsAndThreadsShareAnEngine) {
  const char* text = "b6 s30 d128 h4 l2 f256 mask";
  Posed posed(text, 17);
  const auto backend = backend_for(posed);
  const auto graph = backend->prepare(posed.problem, with(posed, *backend, "precision=fp16 graph=on"));
  const auto launches = backend->prepare(posed.problem, with(posed, *backend, "precision=fp16 graph=off"));
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

// A plan that is wrong in a way that a bench must see.
class WrongPlan : public Plan {
 public:
  WrongPlan(Plan& right, std::int64_t rows_past) : right_(right), past_(rows_past) {}
  void run(const Call& call) override {
    right_.run(call);
    const auto row =
        static_cast<std::int64_t>(call.output.shape[2] * static_cast<std::int64_t>(size_of(call.output.dtype)));
    cuda::check(cuda::driver().cuMemsetD8Async(
                    reinterpret_cast<CUdeviceptr>(call.output.data) +
                        static_cast<CUdeviceptr>((call.output.shape[0] * call.output.shape[1] - 1 + past_) * row),
                    0, static_cast<std::size_t>(row), static_cast<CUstream>(call.stream)),
                "cuMemsetD8Async");
  }
  std::int64_t scratch_bytes() const override { return 0; }

 private:
  Plan& right_;
  std::int64_t past_;
};

TEST_F(CudaBackendTest, TheBenchSeesWrongRowsAndWritesOutside) {
  Posed posed("b2 s5 d64 h4 l1 f64", 14);
  const auto backend = backend_for(posed);
  const auto plan = backend->prepare(posed.problem, backend->plain(posed.problem));
  OnCard card(posed);
  const auto bench = backend->open_workbench(posed.problem, card.call());
  EXPECT_EQ(bench->check(*plan).worst, 0) << "the oracle is the plain path";
  WrongPlan last_row(*plan, 0), past_the_end(*plan, 1);
  EXPECT_GT(bench->check(last_row).out_of_contract, 32);
  EXPECT_EQ(bench->check(past_the_end).fault, "wrote outside the output");
}

TEST(CudaBackend, MissingDevicesAreOneLine) {
  try {
    cuda::driver();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
  const auto weights = std::make_shared<const Weights>(Weights::random(parse_stack_config("d8 h1 l1 f8"), 1));
  EXPECT_THROW(cuda::make_cuda_backend(1000, weights, {}), Error);
}

}  // namespace
}  // namespace gnomon::test
