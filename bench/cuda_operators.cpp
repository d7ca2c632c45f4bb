// Times of the portable CUDA operators alone, each against what it must move or multiply. The planner settles choices
// in whole passes; this shows where an operator stands. One line an operator: median of seven replays of a captured
// graph. Arguments: the parts wanted, of attention, products and rows; none: all.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "cuda/activation.hpp"
#include "cuda/attention.hpp"
#include "cuda/choices.hpp"
#include "cuda/cudnn_session.hpp"
#include "cuda/mask.hpp"
#include "cuda/norm.hpp"
#include "cuda/rows.hpp"
#include "cuda/steps.hpp"
#include "device_timing.hpp"

namespace gnomon::cuda {
namespace {

using Clock = std::chrono::steady_clock;

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
      by_time[microseconds(stream_, launch)] = tile.to_string();
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
      const double us = microseconds(stream_, DnnRun{*session_, *attention, arguments});
      report_attention(s, DType::f16, us,
                       fmt::format("cuDNN {}, plan made in {:.0f} ms, {} bytes of workspace", cudnn().version_text,
                                   1e3 * making.count(), attention->workspace_bytes()));
    } catch (const Error& error) {
      fmt::print("attention f16 #{:<2} without cuDNN: {}\n", s.id, error.what());
    }
  }

  void rows_of(std::int64_t rows, std::int64_t width) {
    const int vec = widest_vec(width);
    const double fill = microseconds(stream_, Fill{hidden_, rows * width * 8});
    const auto report = [&](const char* what, double bytes_per_element, const auto& launch) {
      const double us = microseconds(stream_, launch),
                   among = microseconds(stream_, Among{{hidden_, rows * width * 8}, launch}) - fill;
      fmt::print("{:<26} {:>8} x {:<5} {:9.2f} us, among products {:9.2f} us {:5.2f} TB/s\n", what, rows, width, us,
                 among, bytes_per_element * static_cast<double>(rows * width) / among / 1e6);
    };
    auto load = load_rows(library_, DType::f32, DType::f16, rows, width, vec);
    load.params.from = wide_.at();
    load.params.narrow = more_.at();
    report("load f32 to f16", 6, load);
    auto norm = norm_rows(library_, {DType::f32, DType::f16, DType::f16, {}}, rows, width, vec);
    norm.params.residual = out_.at();
    norm.params.branch = narrow_.at();
    norm.params.bias = norm.params.weight = norm.params.shift = wide_.at<float>();
    norm.params.eps = 1e-5f;
    norm.params.normalised = out_.at<float>();
    norm.params.narrow = more_.at();
    report("residual + norm + cast", 12, norm);
    auto packed = norm_rows(library_, {DType::f16, DType::f16, DType::f16, {}, true}, rows, width, vec);
    packed.params.residual = packed.params.narrow = more_.at();
    packed.params.remainder = packed.params.remainder_to = out_.at<kernels::u8>();
    packed.params.branch = narrow_.at();
    packed.params.bias = packed.params.weight = packed.params.shift = wide_.at<float>();
    packed.params.eps = 1e-5f;
    report("packed residual", 8, packed);
    for (const auto& [activation, name] : {std::pair{Activation::gelu_erf, "bias + gelu f16"},
                                           {Activation::gelu_tanh, "bias + gelu_tanh f16"},
                                           {Activation::relu, "bias + relu f16"}}) {
      auto act = activate(library_, DType::f16, activation, rows, width);
      act.params.from = narrow_.at();
      act.params.to = more_.at();
      act.params.bias = wide_.at<float>();
      report(name, 4, act);
    }
  }

  // A layer's products by every algorithm; the two whose bias the norm adds, also with it in the epilogue.
  void products_of(const Shape& s) {
    const std::int64_t rows = s.batch * s.seq, d = s.d;
    const struct {
      const char* name;
      std::int64_t in, out;
      bool bias;
      Epilogue epilogue = Epilogue::none;
    } products[] = {{"Q|K|V", d, 3 * d, true},        {"output", d, d, false},
                    {"output, bias", d, d, true},     {"FFN, first", d, 4 * d, true, Epilogue::gelu_tanh},
                    {"FFN, second", 4 * d, d, false}, {"FFN, second, bias", 4 * d, d, true}};
    for (const auto& p : products) {
      ProductSpec spec{.rows = rows, .in = p.in, .out = p.out, .ldx = p.in, .ldw = p.in, .ldy = p.out};
      spec.type = spec.result = DType::f16;
      spec.epilogue = p.epilogue;
      if (p.bias) spec.bias = narrow_.at();
      std::string times;
      for (int choice = 0; choice < kMostAlgorithms; ++choice) {
        try {
          const Product product(blas_, spec, choice);
          const ProductStep step{&product, narrow_.at(), narrow_.at(kBytes / 2), more_.at(), hidden_.at()};
          times += fmt::format(" {:.2f}", microseconds(stream_, step));
        } catch (const Error&) {
          break;  // the library has no more
        }
      }
      fmt::print("product f16 #{:<2} {:<18} us by algorithm:{}\n", s.id, p.name, times);
    }
  }

 private:
  // What a layer's products leave in the second-level cache, in place of what was there: a tensor of the FFN's size.
  struct Fill {
    const Memory& hidden;
    std::int64_t bytes;
    void run(CUstream stream) const {
      check(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(hidden.at()), 0, static_cast<std::size_t>(bytes),
                                     stream),
            "cuMemsetD8Async");
    }
  };
  template <typename Launched>
  struct Among {
    Fill fill;
    const Launched& launch;
    void run(CUstream stream) const {
      fill.run(stream);
      launch.run(stream);
    }
  };
  template <typename Launched>
  Among(Fill, const Launched&) -> Among<Launched>;

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

  static constexpr std::int64_t kBytes = std::int64_t{2} << 30;
  KernelLibrary& library_;
  CUstream stream_ = nullptr;
  Arena arena_;
  std::optional<DnnSession> session_;
  BlasHandle blas_;
  Memory hidden_{kBytes, DType::f16};
  Memory wide_{kBytes, DType::f32}, narrow_{kBytes, DType::f16}, out_{kBytes, DType::f32}, more_{kBytes, DType::f32};
};

void run(std::span<const char* const> parts) {
  const auto wanted = [&](std::string_view part) {
    return parts.empty() || std::ranges::find(parts, part) != parts.end();
  };
  Device device(0);
  const Device::Current current(device);
  KernelLibrary library(device, std::make_shared<Compiler>());
  fmt::print("{}, driver {}, cuBLASLt {}, kernels {:016x}\n", device.properties().name, driver().version,
             cublaslt().version_text, kernel_sources_hash());
  Bench bench(library);
  for (const Shape& s : kSuite) {
    if (!wanted("attention")) break;
    bench.attention_of(s, DType::f16);
    bench.attention_of_cudnn(s);
    if (s.id >= 4) bench.attention_of(s, DType::f32);
  }
  for (const Shape& s : kSuite) {
    if (s.id < 8) continue;
    if (wanted("products")) bench.products_of(s);
    if (wanted("rows")) bench.rows_of(s.batch * s.seq, s.d);
  }
  if (!wanted("rows")) return;
  for (const std::int64_t width : {128, 512, 1024}) bench.rows_of(102'400, width);
  bench.rows_of(6'400, 768);
  bench.rows_of(1'000'000, 128);
  bench.rows_of(100'000, 129);
}

}  // namespace
}  // namespace gnomon::cuda

int main(int argc, char** argv) {
  try {
    gnomon::cuda::run(std::span(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
