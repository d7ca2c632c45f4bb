// How a plan is called: on whose stream, under a capture, by several threads, with tensors at changing addresses.
#include "cuda/backend_fixture.hpp"

namespace gnomon::test {
namespace {

// Holds a stream up until it is released, or for some ten seconds: a test that waits for it fails and does not hang.
constexpr cuda::SourceFile kHold[] = {{"hold.cuh", R"(
template <int N> __global__ void hold(const volatile int* released) {
  const long long start = clock64();
  while (*released == 0 && clock64() - start < 20000000000ll) __nanosleep(1000);
})"}};

class Hold {
 public:
  explicit Hold(const cuda::Device& device) : library_(device, std::make_shared<cuda::Compiler>("", kHold)) {
    *released_.as<volatile int>() = 0;
    cuda::check(cuda::driver().cuEventCreate(&passed_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    kernel_ = &library_.get({"hold.cuh", "hold<0>", {}});
  }
  ~Hold() {
    release();
    cuda::driver().cuCtxSynchronize();
    cuda::driver().cuEventDestroy(passed_);
  }
  void on(CUstream stream) {
    const int* const flag = released_.as<int>();
    kernel_->launch(stream, cuda::LaunchShape{.blocks = 1, .threads = 1}, flag);
    mark(stream);
  }
  void mark(CUstream stream) { cuda::check(cuda::driver().cuEventRecord(passed_, stream), "cuEventRecord"); }
  bool holds() const { return cuda::driver().cuEventQuery(passed_) == CUDA_ERROR_NOT_READY; }
  void release() { *released_.as<volatile int>() = 1; }

 private:
  cuda::PinnedBuffer released_{sizeof(int)};
  cuda::KernelLibrary library_;
  const cuda::Kernel* kernel_;
  CUevent passed_ = nullptr;
};

constexpr const char* kWays[] = {"precision=fp16 graph=on", "precision=fp16 graph=off", "precision=fp16 slices=2",
                                 "precision=fp32 graph=on"};

TEST_F(CudaBackendTest, WorkGoesOnTheCallersStream) {
  for (const char* changes : kWays) {
    SCOPED_TRACE(changes);
    Posed posed("b6 s30 d128 h4 l2 f256", 40);
    const auto backend = backend_for(posed);
    const auto plan = backend->prepare(posed.problem, with(posed, *backend, changes));
    const cuda::Stream stream;
    OnCard card(posed);
    Call call = card.call();
    call.stream = stream;
    plan->run(call);  // loads and captures
    stream.synchronize();
    OnCard other(posed);
    call = other.call();
    call.stream = stream;
    Hold hold(*device());
    hold.on(stream);
    plan->run(call);
    hold.mark(stream);
    EXPECT_TRUE(hold.holds()) << "it ran elsewhere, or waited for the stream";
    hold.release();
    stream.synchronize();
    const Verdict verdict = other.judge(posed);
    EXPECT_TRUE(verdict.fault.empty() && verdict.worst <= 1) << describe(verdict);
  }
}

TEST_F(CudaBackendTest, AnotherStreamIsNotWaitedFor) {
  for (const char* changes : kWays) {
    SCOPED_TRACE(changes);
    Posed posed("b6 s30 d128 h4 l2 f256", 41);
    const auto backend = backend_for(posed);
    const auto plan = backend->prepare(posed.problem, with(posed, *backend, changes));
    const cuda::Stream stream, busy;
    OnCard first(posed), second(posed);
    Call call = first.call();
    call.stream = stream;
    plan->run(call);
    stream.synchronize();
    Hold hold(*device());
    hold.on(busy);
    call = second.call();
    call.stream = stream;
    plan->run(call);
    stream.synchronize();
    EXPECT_TRUE(hold.holds()) << "the call waited for the whole device";
    hold.release();
    const Verdict verdict = second.judge(posed);
    EXPECT_TRUE(verdict.fault.empty() && verdict.worst <= 1) << describe(verdict);
  }
}

// New storage for each call, the same storage with new contents, the mask too: the answer is always that of the tensors
// passed.
TEST_F(CudaBackendTest, AddressesMayAlternate) {
  for (const char* changes : kWays) {
    for (const char* text : {"b6 s20 d64 h4 l2 f128 mask", "b6 s20 d64 h4 l2 f128 mask inplace"}) {
      SCOPED_TRACE(std::string(text) + " " + changes);
      Posed first(text, 42), second(text, 43);
      const auto backend = backend_for(first);
      const auto plan = backend->prepare(first.problem, with(first, *backend, changes));
      second.expected = oracle(*first.weights, second.input.const_view(), second.mask->view());
      std::vector<std::unique_ptr<OnCard>> cards;
      for (int i = 0; i < 4; ++i) cards.push_back(std::make_unique<OnCard>(first));
      for (int round = 0; round < 100; ++round) {
        OnCard& card = *cards[static_cast<std::size_t>(round * 7 % 4)];
        const Posed& posed = round / 3 % 2 ? second : first;
        card.input.upload(posed.input);
        card.mask.upload(posed.mask_bytes.data());
        plan->run(card.call());
        const Verdict verdict = card.judge(posed);
        ASSERT_TRUE(verdict.fault.empty() && verdict.worst <= 1) << "round " << round << ": " << describe(verdict);
      }
    }
  }
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
  Posed posed("b6 s30 d128 h4 l2 f256 mask", 17);
  expect_shared_by_threads(posed, "precision=fp16");
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

}  // namespace
}  // namespace gnomon::test
