// What the end of a captured graph costs where it has nothing to do: a block that looks at a flag; a conditional node
// with a pass under it; the same pass as a graph that the device may launch. And what programmatic launches take off
// a chain. Microseconds of a replay, one behind the other on a stream: the median of five rounds, each of all rows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <tuple>
#include <vector>

#include "cuda/compiler.hpp"
#include "cuda/device_buffer.hpp"
#include "cuda/kernel.hpp"

namespace gnomon::cuda {
namespace {

constexpr SourceFile kKernels[] = {{"graphs.cuh", R"(
typedef unsigned int u32;
typedef unsigned long long u64;
extern "C" __device__ void cudaGraphSetConditional(u64 handle, u32 value);
extern "C" __device__ int cudaGraphLaunch(u64 graph, u64 stream);
struct Params { float* x; u32* flag; u64 handle; };

enum Look { kAtFlag, kSetsIfRaised, kSetsAlways, kLaunches };
template <int kLook, bool kWaits>
__global__ void look(const Params p) {
  if (kWaits) asm volatile("griddepcontrol.wait;" ::: "memory");
  if (threadIdx.x != 0) return;
  const u32 raised = *p.flag;
  if (kLook == kSetsAlways) cudaGraphSetConditional(p.handle, raised);
  if (raised == 0) return;
  if (kLook == kAtFlag) *p.flag = 2;
  if (kLook == kSetsIfRaised) cudaGraphSetConditional(p.handle, 1);
  if (kLook == kLaunches) cudaGraphLaunch(p.handle, 0x0100000000000000ull);  // behind the graph that this is a node of
}

// kClocks: that it takes at least. kWaits, kTriggers: for what is ahead, at once for what follows.
template <int kClocks, bool kWaits, bool kTriggers>
__global__ void work(const Params p) {
  if (kTriggers) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (kWaits) asm volatile("griddepcontrol.wait;" ::: "memory");
  const long long start = clock64();
  while (clock64() - start < kClocks) {}
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  p.x[i] = p.x[i] * 0.5f + 1.0f;
}
)"}};

struct Params {
  float* x;
  std::uint32_t* flag;
  std::uint64_t handle;
};

constexpr const char *kShort = "work<0, false, false>", *kLong = "work<30000, false, false>";
constexpr int kBlocks = 132, kThreads = 256, kUnder = 30;  // kernels under the condition, as in a pass of three layers

class Bench {
 public:
  Bench() {
    check(driver().cuMemsetD8Async(memory_.address(), 0, memory_.bytes(), stream_), "cuMemsetD8Async");
    stream_.synchronize();
  }
  ~Bench() {
    for (Row& row : rows_) driver().cuGraphExecDestroy(row.exec);
    for (CUgraph graph : graphs_) driver().cuGraphDestroy(graph);
  }

  void launch(const std::string& kernel, int blocks = kBlocks, bool overlapping = false, std::uint64_t handle = 0) {
    const Params params{memory_.as<float>() + 1024, memory_.as<std::uint32_t>(), handle};
    const int threads = blocks == 1 ? 32 : kThreads;
    library_.get({"graphs.cuh", kernel, {}})
        .launch(stream_, LaunchShape{.blocks = blocks, .threads = threads, .overlapping = overlapping}, params);
  }
  void chain(const std::string& kernel, int kernels, int blocks = kBlocks, bool overlapping = false) {
    for (int i = 0; i < kernels; ++i) launch(kernel, blocks, overlapping);
  }

  // What `work` launches, as a row of the table.
  void row(std::string name, const std::function<void()>& work) {
    rows_.push_back({std::move(name), capture(work, 0)});
  }

  // The same, and a conditional node behind it. work(handle)
  void conditional_row(std::string name, unsigned flags, const std::function<void(std::uint64_t)>& work) {
    CUgraph graph = nullptr;
    check(driver().cuGraphCreate(&graph, 0), "cuGraphCreate");
    graphs_.push_back(graph);
    CUcontext context = nullptr;
    check(driver().cuCtxGetCurrent(&context), "cuCtxGetCurrent");
    CUgraphConditionalHandle handle = 0;
    check(driver().cuGraphConditionalHandleCreate(&handle, graph, context, 0, flags), "cuGraphConditionalHandleCreate");
    const CUgraphNode last = capture_into(graph, [&] { work(handle); });
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = 1;
    params.conditional.ctx = context;
    CUgraphNode node = nullptr;
    check(driver().cuGraphAddNode_v1(&node, graph, &last, 1, &params), "cuGraphAddNode");
    capture_into(params.conditional.phGraph_out[0], [&] { chain(kShort, kUnder); });
    rows_.push_back({std::move(name), instantiate(graph, 0)});
  }

  // A pass that the device may launch.
  std::uint64_t graph_for_device() {
    const CUgraphExec exec = capture([&] { chain(kShort, kUnder); }, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
    check(driver().cuGraphLaunch(exec, stream_), "cuGraphLaunch");  // uploads it
    stream_.synchronize();
    return reinterpret_cast<std::uint64_t>(exec);
  }

  void run() {
    for (int round = 0; round < kRounds; ++round) {
      for (Row& row : rows_) row.times[static_cast<std::size_t>(round)] = seconds(row.exec);
    }
    for (Row& row : rows_) {
      std::ranges::sort(row.times);
      fmt::print("{:<66} {:7.2f} us  ({:.2f} to {:.2f})\n", row.name, row.times[kRounds / 2] * 1e6,
                 row.times.front() * 1e6, row.times.back() * 1e6);
    }
  }

  const Device& device() const { return device_; }

 private:
  static constexpr int kRounds = 5, kReplays = 200;
  struct Row {
    std::string name;
    CUgraphExec exec;
    std::array<double, kRounds> times{};
  };

  CUgraphExec instantiate(CUgraph graph, unsigned long long flags) {
    CUgraphExec exec = nullptr;
    check(driver().cuGraphInstantiate(&exec, graph, flags), "cuGraphInstantiate");
    return exec;
  }
  CUgraphExec capture(const std::function<void()>& work, unsigned long long flags) {
    CUgraph graph = nullptr;
    check(driver().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
    work();
    check(driver().cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    graphs_.push_back(graph);
    return instantiate(graph, flags);
  }
  // The last node of what was captured.
  CUgraphNode capture_into(CUgraph graph, const std::function<void()>& work) {
    check(driver().cuStreamBeginCaptureToGraph(stream_, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED),
          "cuStreamBeginCaptureToGraph");
    work();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode* nodes = nullptr;
    std::size_t count = 0;
    check(driver().cuStreamGetCaptureInfo_v2(stream_, &status, nullptr, nullptr, &nodes, &count),
          "cuStreamGetCaptureInfo_v2");
    const CUgraphNode last = nodes[0];
    CUgraph same = nullptr;
    check(driver().cuStreamEndCapture(stream_, &same), "cuStreamEndCapture");
    return last;
  }
  double seconds(CUgraphExec exec) {
    const auto replay = [&](int times) {
      for (int i = 0; i < times; ++i) check(driver().cuGraphLaunch(exec, stream_), "cuGraphLaunch");
      stream_.synchronize();
    };
    replay(20);
    const auto begin = std::chrono::steady_clock::now();
    replay(kReplays);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kReplays;
  }

  Device device_{0};
  Device::Current current_{device_};
  KernelLibrary library_{device_, std::make_shared<Compiler>("", kKernels)};
  Stream stream_;
  DeviceBuffer memory_{std::size_t{16} << 20};
  std::vector<CUgraph> graphs_;
  std::vector<Row> rows_;
};

void run() {
  Bench bench;
  fmt::print("{}, driver {}\n", bench.device().properties().name, driver().version);
  const std::uint64_t pass = bench.graph_for_device();
  for (const auto& [name, kernel, kernels] :
       {std::tuple{"one long kernel", kLong, 1}, {"ten short ones", kShort, 10}, {"twenty short ones", kShort, 20}}) {
    const auto ahead = [&bench, kernel, kernels] { bench.chain(kernel, kernels); };
    const auto named = [&](const char* what) { return fmt::format("{}{}", name, what); };
    bench.row(name, ahead);
    bench.row(named(", a look"), [&] {
      ahead();
      bench.launch("look<kAtFlag, false>", 1);
    });
    bench.row(named(", an overlapping look"), [&] {
      ahead();
      bench.launch("look<kAtFlag, true>", 1, true);
    });
    bench.conditional_row(named(", a look, a condition with a default"), CU_GRAPH_COND_ASSIGN_DEFAULT,
                          [&](auto handle) {
                            ahead();
                            bench.launch("look<kSetsIfRaised, false>", 1, false, handle);
                          });
    bench.conditional_row(named(", a look, a condition"), 0, [&](auto handle) {
      ahead();
      bench.launch("look<kSetsAlways, false>", 1, false, handle);
    });
    bench.conditional_row(named(", an overlapping look, a condition"), 0, [&](auto handle) {
      ahead();
      bench.launch("look<kSetsAlways, true>", 1, true, handle);
    });
    bench.row(named(", a look that may launch a graph"), [&] {
      ahead();
      bench.launch("look<kLaunches, false>", 1, false, pass);
    });
  }
  for (const int blocks : {kBlocks, 8 * kBlocks, 60 * kBlocks}) {
    const auto named = [&](const char* what) { return fmt::format("eleven kernels of {} blocks{}", blocks, what); };
    bench.row(named(""), [&] { bench.chain(kShort, 11, blocks); });
    bench.row(named(", overlapping"), [&] { bench.chain("work<0, true, false>", 11, blocks, true); });
    bench.row(named(", overlapping, triggered at once"), [&] { bench.chain("work<0, true, true>", 11, blocks, true); });
  }
  bench.run();
}

}  // namespace
}  // namespace gnomon::cuda

int main() {
  try {
    gnomon::cuda::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
