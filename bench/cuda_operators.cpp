// Times of the portable CUDA operators alone, each against what it must move or multiply. The planner settles choices
// in whole passes; this shows where an operator stands. One line an operator: median of seven replays of a captured
// graph.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/half.hpp"
#include "cuda/activation.hpp"
#include "cuda/attention.hpp"
#include "cuda/cudnn_session.hpp"
#include "cuda/mask.hpp"
#include "cuda/norm.hpp"
#include "cuda/rows.hpp"

namespace gnomon::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// Device memory of random normal numbers, fp16 or fp32: zeros run faster than data does.
class Memory {
 public:
  Memory(std::int64_t bytes, DType dtype) {
    check(driver().cuMemAlloc(&address_, static_cast<std::size_t>(bytes)), "cuMemAlloc");
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<unsigned char> block(std::size_t{16} << 20);
    for (std::size_t i = 0; i < block.size(); i += size_of(dtype)) {
      const float value = normal(random);
      const std::uint16_t half = float_to_f16(value);
      std::memcpy(block.data() + i, dtype == DType::f32 ? static_cast<const void*>(&value) : &half, size_of(dtype));
    }
    for (std::size_t at = 0; at < static_cast<std::size_t>(bytes); at += block.size()) {
      const std::size_t n = std::min(block.size(), static_cast<std::size_t>(bytes) - at);
      check(driver().cuMemcpyHtoDAsync(address_ + at, block.data(), n, nullptr), "cuMemcpyHtoDAsync");
    }
    check(driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  }
  ~Memory() { driver().cuMemFree(address_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  template <typename T = void>
  T* at(std::int64_t bytes = 0) const {
    return reinterpret_cast<T*>(address_ + static_cast<CUdeviceptr>(bytes));
  }

 private:
  CUdeviceptr address_ = 0;
};

struct Shape {
  int id;
  std::int64_t batch, seq, d, heads;
};
constexpr Shape kSuite[] = {{1, 1, 100, 128, 4},     {2, 4, 100, 128, 4},   {3, 16, 100, 128, 4},
                            {4, 64, 100, 128, 4},    {5, 256, 100, 128, 4}, {6, 1024, 100, 128, 4},
                            {7, 10000, 100, 128, 4}, {8, 64, 100, 256, 4},  {9, 64, 100, 512, 8},
                            {10, 64, 100, 1024, 16}, {11, 16, 512, 512, 8}, {12, 8, 1024, 512, 4},
                            {13, 4, 4096, 512, 8}};

class Bench {
 public:
  explicit Bench(KernelLibrary& library) : library_(library) {
    check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }

  void attention_of(const Shape& s, DType dtype) {
    const AttentionSpec spec{
        .dtype = dtype, .batch = s.batch, .seq = s.seq, .heads = s.heads, .head_dim = s.d / s.heads};
    const auto tiles = attention_tiles(spec, library_.device().properties());
    std::vector<std::thread> compilers;
    for (const AttentionTile& tile : tiles) {
      compilers.emplace_back(
          [&, tile] { library_.compiler().get(attention_source(spec, tile), library_.device().architecture()); });
    }
    for (std::thread& t : compilers) t.join();
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    const Memory& in = dtype == DType::f32 ? wide_ : narrow_;
    std::map<double, std::string> by_time;
    for (const AttentionTile& tile : tiles) {
      auto launch = attention(library_, spec, tile, nullptr);
      launch.params.q = in.at();
      launch.params.k = in.at(s.d * size);
      launch.params.v = in.at(2 * s.d * size);
      launch.params.out = out_.at();
      by_time[microseconds(launch)] = tile.to_string();
    }
    const auto& [best, name] = *by_time.begin();
    report_attention(s, dtype, best, name);
    std::string others;
    for (const auto& [time, tile] : by_time) others += fmt::format(" {}={:.1f}", tile, time);
    fmt::print("   {}\n", others);
  }

  void attention_of_cudnn(const Shape& s) {
    const AttentionSpec spec{.batch = s.batch, .seq = s.seq, .heads = s.heads, .head_dim = s.d / s.heads};
    try {
      if (const auto reason = refuses_cudnn_attention(spec)) throw_environment("{}", *reason);
      if (!session_) session_.emplace(arena_, library_.device().properties(), KernelCache({}));
      const auto begin = Clock::now();
      const auto attention = session_->attention(spec);
      const std::chrono::duration<double> making = Clock::now() - begin;
      const DnnDescriptor arguments = attention->arguments(narrow_.at(), out_.at(), more_.at());
      const double us = microseconds(DnnRun{*session_, *attention, arguments});
      report_attention(s, DType::f16, us,
                       fmt::format("cuDNN {}, plan made in {:.0f} ms, {} bytes of workspace", cudnn().version_text,
                                   1e3 * making.count(), attention->workspace_bytes()));
    } catch (const Error& error) {
      fmt::print("attention f16 #{:<2} without cuDNN: {}\n", s.id, error.what());
    }
  }

  void rows_of(std::int64_t rows, std::int64_t width) {
    const int vec = widest_vec(width);
    const auto report = [&](const char* what, double bytes_per_element, double us) {
      fmt::print("{:<26} {:>8} x {:<5} {:9.1f} us {:5.2f} TB/s\n", what, rows, width, us,
                 bytes_per_element * static_cast<double>(rows * width) / us / 1e6);
    };
    auto load = load_rows(library_, DType::f32, DType::f16, rows, width, vec);
    load.params.from = wide_.at();
    load.params.narrow = out_.at();
    report("load f32 to f16", 6, microseconds(load));
    auto norm = norm_rows(library_, {DType::f32, DType::f16, DType::f16, {}}, rows, width, vec);
    norm.params.residual = wide_.at();
    norm.params.branch = narrow_.at();
    norm.params.weight = norm.params.shift = wide_.at<float>();
    norm.params.eps = 1e-5f;
    norm.params.normalised = out_.at<float>();
    norm.params.narrow = more_.at();
    report("residual + norm + cast", 12, microseconds(norm));
    for (const auto& [activation, name] : {std::pair{Activation::gelu_erf, "bias + gelu f16"},
                                           {Activation::gelu_tanh, "bias + gelu_tanh f16"},
                                           {Activation::relu, "bias + relu f16"}}) {
      auto act = activate(library_, DType::f16, activation, rows, width);
      act.params.from = narrow_.at();
      act.params.to = out_.at();
      act.params.bias = wide_.at<float>();
      report(name, 4, microseconds(act));
    }
  }

 private:
  struct DnnRun {
    DnnSession& session;
    const DnnAttention& attention;
    const DnnDescriptor& arguments;
    void run(CUstream stream) const { session.run(stream, attention, arguments); }
  };

  static void report_attention(const Shape& s, DType dtype, double us, const std::string& what) {
    const double flops = 2.0 * static_cast<double>(s.batch * s.seq * (s.seq + 1) * s.d);  // the causal half
    const double bytes = static_cast<double>(4 * static_cast<std::int64_t>(size_of(dtype)) * s.batch * s.seq * s.d);
    fmt::print("attention {} #{:<2} {:9.1f} us {:6.1f} TFLOP/s {:5.2f} TB/s  {}\n", name_of(dtype), s.id, us,
               flops / us / 1e6, bytes / us / 1e6, what);
  }

  template <typename Launched>
  double microseconds(const Launched& launch) {
    launch.run(stream_);
    check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
    const auto seconds = [&](auto&& f) {
      const auto begin = Clock::now();
      f();
      check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    const int launches = static_cast<int>(std::clamp(0.003 / seconds([&] { launch.run(stream_); }), 3.0, 300.0));
    CUgraph graph = nullptr;
    CUgraphExec replay = nullptr;
    check(driver().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
    for (int i = 0; i < launches; ++i) launch.run(stream_);
    check(driver().cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    check(driver().cuGraphInstantiate(&replay, graph, 0), "cuGraphInstantiate");
    std::vector<double> times;
    for (int i = 0; i < 8; ++i)
      times.push_back(seconds([&] { check(driver().cuGraphLaunch(replay, stream_), "cuGraphLaunch"); }));
    driver().cuGraphExecDestroy(replay);
    driver().cuGraphDestroy(graph);
    times.erase(times.begin());  // the first one warms up
    std::ranges::nth_element(times, times.begin() + 3);
    return times[3] / launches * 1e6;
  }

  static constexpr std::int64_t kBytes = std::int64_t{2} << 30;
  KernelLibrary& library_;
  CUstream stream_ = nullptr;
  Arena arena_;
  std::optional<DnnSession> session_;
  Memory wide_{kBytes, DType::f32}, narrow_{kBytes, DType::f16}, out_{kBytes, DType::f32}, more_{kBytes, DType::f32};
};

void run() {
  Device device(0);
  const Device::Current current(device);
  KernelLibrary library(device, std::make_shared<Compiler>());
  fmt::print("{}, driver {}, kernels {:016x}\n", device.properties().name, driver().version, kernel_sources_hash());
  Bench bench(library);
  for (const Shape& s : kSuite) {
    bench.attention_of(s, DType::f16);
    bench.attention_of_cudnn(s);
  }
  for (const Shape& s : kSuite) {
    if (s.id >= 4) bench.attention_of(s, DType::f32);
  }
  for (const std::int64_t width : {128, 512, 1024}) {
    for (const std::int64_t rows : {6'400, 102'400}) bench.rows_of(rows, width);
  }
  bench.rows_of(1'000'000, 128);
  bench.rows_of(100'000, 129);
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
