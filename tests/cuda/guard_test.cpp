// Calls inside and outside of the verified range, in turn: each is answered by the pass that may, however the plan runs
// and whoever else calls.
#include <deque>

#include "cuda/backend_fixture.hpp"

namespace gnomon::test {
namespace {

constexpr std::uint64_t kSeed = 8;

// Tensors to call with and what must come of them: the usual input, which verifies the range, or one far outside of it.
struct Asked {
  Asked(const Posed& its, std::int64_t its_answers) : posed(its), answers(its_answers), card(its) {}
  const Posed& posed;
  const std::int64_t answers;  // of the fp32 pass
  OnCard card;
};

class CudaGuard : public CudaBackendTest {
 protected:
  // A plan with the range of its usual input.
  struct Ranged {
    Ranged(const std::string& text, const std::string& changes)
        : usual(text, kSeed), far(text, kSeed, MaskKind::holes, Layout::contiguous, Layout::contiguous, 100) {
      backend = backend_for(usual);
      const Candidate candidate = with(usual, *backend, changes);
      if (const auto refusal = backend->refuses(usual.problem, {}, candidate)) throw_internal("{}", refusal->reason);
      plan = backend->prepare(usual.problem, candidate);
      OnCard card(usual);
      range = backend->open_workbench(usual.problem, card.call())->input_range();
      plan->set_verified_range(range);
      slices = candidate.get("slices") == "1" ? usual.problem.batch : 1;
    }
    std::unique_ptr<Asked> ask(bool outside) const {
      return std::make_unique<Asked>(outside ? far : usual, outside ? slices : 0);
    }
    void call(Asked& asked, CUstream stream = nullptr) const {
      Call call = asked.card.call();
      call.stream = stream;
      plan->run(call);
    }
    Posed usual, far;
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Plan> plan;
    InputRange range;
    std::int64_t slices = 1;
  };

  static void expect_answer(Asked& asked) {
    const Verdict verdict = asked.card.judge(asked.posed);
    EXPECT_TRUE(verdict.fault.empty() && verdict.worst <= 1) << describe(verdict);
  }

  // Calls on two streams, usual and far ones mixed, none waited for before the next one is there.
  static void alternate(const Ranged& ranged, int rounds) {
    Rng rng(test_seed());
    const cuda::Stream streams[2];
    for (int round = 0; round < rounds && !HasFailure(); ++round) {
      SCOPED_TRACE(round);
      std::vector<std::unique_ptr<Asked>> calls;
      for (int i = 0; i < 4; ++i) calls.push_back(ranged.ask(rng() % 2 != 0));
      synchronize();  // the uploads
      std::int64_t answers = ranged.plan->range_fallbacks();
      for (std::size_t i = 0; i < calls.size(); ++i) {
        ranged.call(*calls[i], streams[i % 2]);
        answers += calls[i]->answers;
      }
      for (const cuda::Stream& stream : streams) stream.synchronize();
      EXPECT_EQ(ranged.plan->range_fallbacks(), answers);
      for (const auto& asked : calls) expect_answer(*asked);
    }
  }
};

constexpr const char* kTexts[] = {"b4 s20 d64 h4 l2 f128", "b4 s20 d64 h4 l2 f128 mask",
                                  "b4 s20 d64 h4 l2 f128 inplace", "b4 s20 d64 h4 l2 f128 inplace mask f16"};
constexpr const char* kWays[] = {"precision=fp16 graph=on slices=all",
                                 "precision=fp16 graph=off slices=all",
                                 "precision=fp16 graph=on slices=1",
                                 "path=resident graph=on slices=all",
                                 "path=resident graph=off slices=all",
                                 "precision=fp16 packed_residual=on graph=on slices=all",
                                 "precision=fp32 ffn_precision=fp16 graph=on slices=all"};

class CudaGuardWays : public CudaGuard, public testing::WithParamInterface<std::tuple<const char*, const char*>> {
 protected:
  static std::string text() { return std::get<0>(GetParam()); }
  static std::string way() { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(All, CudaGuardWays, testing::Combine(testing::ValuesIn(kTexts), testing::ValuesIn(kWays)));

TEST_P(CudaGuardWays, UsualAndFarCallsAlternateOnTwoStreams) { alternate(Ranged(text(), way()), 8); }

// An older driver: the host looks at the flag.
TEST_P(CudaGuardWays, WithoutConditionalNodesToo) {
  cuda::Driver old = cuda::driver();
  old.cuGraphAddNode_v1 = nullptr;
  struct Restore {
    const cuda::Driver* before;
    ~Restore() { cuda::use_driver(before); }
  } const restore{cuda::use_driver(&old)};
  alternate(Ranged(text(), way()), 3);
}

TEST_F(CudaGuard, OneSliceOutsideIsOneAnswer) {
  for (const char* text : {"b4 s20 d64 h4 l2 f128", "b4 s20 d64 h4 l2 f128 inplace"}) {
    const Ranged ranged(text, "precision=fp16 graph=on slices=1");
    Posed mixed(text, kSeed);
    for (std::int64_t s = 0; s < 20; ++s) {
      for (std::int64_t i = 0; i < 64; ++i) set_value(mixed.input.view(), 2, s, i, 1000.0 + static_cast<double>(i * s));
    }
    mixed.expected = oracle(*mixed.weights, mixed.input.const_view(), std::nullopt);
    for (int round = 1; round <= 3; ++round) {
      Asked asked(mixed, 1);
      ranged.call(asked);
      expect_answer(asked);
      EXPECT_EQ(ranged.plan->range_fallbacks(), round);
    }
  }
}

// Inside of the range, and more than fp16 holds: what is not finite is seen where it goes out.
class CudaGuardOverflow : public CudaGuardWays {};  // a tensor of fp16 holds no more than its products do
INSTANTIATE_TEST_SUITE_P(All, CudaGuardOverflow,
                         testing::Combine(testing::ValuesIn(kTexts, kTexts + 3),
                                          testing::ValuesIn(kWays, kWays + 6)));  // in fp32 attention nothing overflows

TEST_P(CudaGuardOverflow, WhatOverflowsIsAnsweredInFp32) {
  const Ranged ranged(text(), way());
  ranged.plan->set_verified_range({0, 1e30});
  const Posed huge(text(), kSeed, MaskKind::holes, Layout::contiguous, Layout::contiguous, 1e5);
  Asked asked(huge, ranged.slices);
  ranged.call(asked);
  expect_answer(asked);
  EXPECT_EQ(ranged.plan->range_fallbacks(), ranged.slices);
}

// While nobody looks, a flag that was raised stays up; it says nothing about the calls after that.
TEST_F(CudaGuard, TheCheckMayBeTurnedOffAndOn) {
  for (const char* changes : {"precision=fp16 graph=on slices=all", "precision=fp16 graph=off slices=all"}) {
    SCOPED_TRACE(changes);
    const Ranged ranged("b4 s20 d64 h4 l2 f128", changes);
    Posed broken("b4 s20 d64 h4 l2 f128", kSeed);
    set_value(broken.input.view(), 1, 3, 5, std::nan(""));
    for (int round = 0; round < 2; ++round) {
      const std::int64_t before = ranged.plan->range_fallbacks();
      ranged.plan->set_verified_range(kAnyInput);
      Asked unseen(broken, 0);
      ranged.call(unseen);
      synchronize();
      EXPECT_EQ(ranged.plan->range_fallbacks(), before);
      ranged.plan->set_verified_range(ranged.range);
      for (const bool outside : {false, true}) {
        const auto asked = ranged.ask(outside);
        ranged.call(*asked);
        expect_answer(*asked);
        EXPECT_EQ(ranged.plan->range_fallbacks(), before + (outside ? 1 : 0));
      }
    }
  }
}

// A call captured by its caller.
class Captured {
 public:
  Captured(Plan& plan, Call call) {
    const cuda::Stream stream;
    call.stream = stream;
    cuda::check(cuda::driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    plan.run(call);
    cuda::check(cuda::driver().cuStreamEndCapture(stream, &graph_), "cuStreamEndCapture");
    cuda::check(cuda::driver().cuGraphInstantiate(&exec_, graph_, 0), "cuGraphInstantiate");
  }
  ~Captured() {
    cuda::driver().cuGraphExecDestroy(exec_);
    cuda::driver().cuGraphDestroy(graph_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  void replay(CUstream stream) const { cuda::check(cuda::driver().cuGraphLaunch(exec_, stream), "cuGraphLaunch"); }

 private:
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

// A captured call has nothing in common with calls that go on beside its replays.
TEST_F(CudaGuard, ReplaysOfAnOuterCaptureGoOnBesideCalls) {
  for (const char* text : {"b4 s20 d64 h4 l2 f128", "b4 s20 d64 h4 l2 f128 inplace"}) {
    SCOPED_TRACE(text);
    const Ranged ranged(text, "precision=fp16 graph=on slices=all");
    const cuda::Stream outer, inner;
    const auto asked = ranged.ask(false);
    const Captured captured(*ranged.plan, asked->card.call());
    Rng rng(test_seed());
    for (int round = 0; round < 30 && !HasFailure(); ++round) {
      SCOPED_TRACE(round);
      asked->card.input.upload(asked->posed.input);
      const auto beside = ranged.ask(rng() % 2 != 0);
      synchronize();
      captured.replay(outer);
      ranged.call(*beside, inner);
      outer.synchronize();
      inner.synchronize();
      expect_answer(*asked);
      expect_answer(*beside);
    }
  }
}

// Blocks that find a mask's class together, eight short sequences each, are those of one call. Captures and a call
// begin at the same moment, each with a mask of any class: who finds another's blocks among its own leaves a class
// behind that was true of an earlier mask.
TEST_F(CudaGuard, MasksOfReplaysAndCallsAreToldApart) {
  constexpr int kCaptures = 6, kCards = kCaptures + 1;
  const char* const text = "b2000 s4 d16 h1 l1 f16 mask";
  const Posed posed[] = {Posed(text, kSeed, MaskKind::all_true), Posed(text, kSeed, MaskKind::holes)};
  const auto backend = backend_for(posed[0]);
  const Candidate candidate = with(posed[0], *backend, "precision=fp32 fused_attention=on graph=on slices=all");
  const auto plan = backend->prepare(posed[0].problem, candidate);
  std::deque<OnCard> cards;
  std::deque<Captured> captured;
  for (int i = 0; i < kCards; ++i) {
    cards.emplace_back(posed[0]);
    if (i < kCaptures) captured.emplace_back(*plan, cards.back().call());
  }
  const cuda::Stream streams[kCards], busy;
  const cuda::DeviceBuffer large(std::size_t{512} << 20);
  CUevent begin = nullptr;
  cuda::check(cuda::driver().cuEventCreate(&begin, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  Rng rng(test_seed());
  for (int round = 0; round < 24 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    int kinds[kCards];
    for (int i = 0; i < kCards; ++i) {
      kinds[i] = static_cast<int>(rng() % 2);
      cards[i].mask.upload(posed[kinds[i]].mask_bytes.data());
    }
    cuda::check(cuda::driver().cuMemsetD8Async(large.address(), 0, large.bytes(), busy), "cuMemsetD8Async");
    cuda::check(cuda::driver().cuEventRecord(begin, busy), "cuEventRecord");
    for (const cuda::Stream& stream : streams)
      cuda::check(cuda::driver().cuStreamWaitEvent(stream, begin, 0), "cuStreamWaitEvent");
    for (int i = 0; i < kCaptures; ++i) captured[i].replay(streams[i]);
    Call call = cards.back().call();
    call.stream = streams[kCaptures];
    plan->run(call);
    for (const cuda::Stream& stream : streams) stream.synchronize();
    for (int i = 0; i < kCards; ++i) {
      const Verdict verdict = cards[i].judge(posed[kinds[i]]);
      EXPECT_TRUE(verdict.fault.empty() && verdict.worst <= 1) << "call " << i << ": " << describe(verdict);
    }
  }
  cuda::driver().cuEventDestroy(begin);
}

}  // namespace
}  // namespace gnomon::test
