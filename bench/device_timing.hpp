// For programs that time kernels alone: the suite's shapes, device memory that holds random numbers, and how long a
// launch takes.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/dtype.hpp"
#include "core/half.hpp"
#include "cuda/driver.hpp"

namespace gnomon::cuda {

// Device memory of random normal numbers, fp16 or fp32: zeros run faster than data does.
class Memory {
 public:
  Memory(std::int64_t bytes, DType dtype) {
    check(driver().cuMemAlloc(&address_, static_cast<std::size_t>(bytes)), "cuMemAlloc");
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<unsigned char> block(std::size_t{16} << 20);
    for (std::size_t i = 0; i < block.size(); i += size_of(dtype)) {
      const auto put = [&](auto value) { std::memcpy(block.data() + i, &value, sizeof value); };
      dtype == DType::f32 ? put(normal(random)) : put(float_to_f16(normal(random)));
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
inline constexpr Shape kSuite[] = {{1, 1, 100, 128, 4},     {2, 4, 100, 128, 4},   {3, 16, 100, 128, 4},
                                   {4, 64, 100, 128, 4},    {5, 256, 100, 128, 4}, {6, 1024, 100, 128, 4},
                                   {7, 10000, 100, 128, 4}, {8, 64, 100, 256, 4},  {9, 64, 100, 512, 8},
                                   {10, 64, 100, 1024, 16}, {11, 16, 512, 512, 8}, {12, 8, 1024, 512, 4},
                                   {13, 4, 4096, 512, 8}};

// Of one launch among many of a captured graph: the median of seven replays. `launch.run(stream)` launches.
template <typename Launched>
double microseconds(CUstream stream, const Launched& launch) {
  using Clock = std::chrono::steady_clock;
  launch.run(stream);
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  const auto seconds = [&](auto&& f) {
    const auto begin = Clock::now();
    f();
    check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const int launches = static_cast<int>(std::clamp(0.003 / seconds([&] { launch.run(stream); }), 3.0, 300.0));
  CUgraph graph = nullptr;
  CUgraphExec replay = nullptr;
  check(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  for (int i = 0; i < launches; ++i) launch.run(stream);
  check(driver().cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  check(driver().cuGraphInstantiate(&replay, graph, 0), "cuGraphInstantiate");
  std::vector<double> times;
  for (int i = 0; i < 8; ++i)
    times.push_back(seconds([&] { check(driver().cuGraphLaunch(replay, stream), "cuGraphLaunch"); }));
  driver().cuGraphExecDestroy(replay);
  driver().cuGraphDestroy(graph);
  times.erase(times.begin());  // the first one warms up
  std::ranges::nth_element(times, times.begin() + 3);
  return times[3] / launches * 1e6;
}

}  // namespace gnomon::cuda
