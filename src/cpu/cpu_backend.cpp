#include "cpu/cpu_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/memory.hpp"
#include "cpu/arena.hpp"
#include "cpu/bare_products.hpp"
#include "cpu/cache_eviction.hpp"
#include "cpu/cpu_info.hpp"
#include "cpu/plain_plan.hpp"
#include "cpu/product.hpp"
#include "cpu/row_io.hpp"
#include "cpu/search_space.hpp"
#include "cpu/stack_plan.hpp"
#include "cpu/thread_pool.hpp"
#include "cpu/vec_kernels.hpp"
#include "plan/host_workbench.hpp"
#include "reference/plain_pass.hpp"

#ifndef GNOMON_VERSION
#error "GNOMON_VERSION is the build's to define"
#endif

namespace gnomon::cpu {
namespace {

// The bench of the CPU: a reduced precision is trusted by the root mean square of rows.
class CpuWorkbench final : public HostWorkbench {
 public:
  CpuWorkbench(const Problem& problem, const Call& call, const std::function<void(const Call&)>& reference, int threads)
      : HostWorkbench(problem, call, reference), threads_(threads), range_(row_range(problem.config.norm, call)) {}
  InputRange input_range() const override { return range_; }
  void evict_caches() override {
    if (!eviction_) eviction_.emplace(threads_);
    (*eviction_)();
  }

 private:
  static InputRange row_range(NormPlacement norm, const Call& call) {
    const std::int64_t seq = call.input.shape[1], d = call.input.shape[2];
    std::vector<float> row(static_cast<std::size_t>(d)), sizes;
    for (std::int64_t r = 0; r < call.input.shape[0] * seq; ++r) {
      const auto& mask = call.mask;
      if (mask && !mask->valid(r / seq, r % seq)) continue;
      load_rows(call.input, r, 1, row.data());
      sizes.push_back(vec_kernels().row_rms(row.data(), d));
    }
    return trusted_range(norm, std::move(sizes));
  }

  const int threads_;
  std::optional<CacheEviction> eviction_;
  InputRange range_;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(std::shared_ptr<const Weights> weights, const Constraints& constraints)
      : weights_(std::move(weights)),
        threads_(constraints.threads ? std::min(*constraints.threads, available_cores()) : available_cores()) {}

  Environment environment() const override {
    const CpuInfo& cpu = cpu_info();
    return {.device = cpu.model,
            .facts = {{"isa", cpu.isa},
                      {"cores", std::to_string(cpu.cores)},
                      {"onednn", cpu.onednn_version + " " + cpu.onednn_isa},
                      {"gnomon", GNOMON_VERSION}},
            .notes = {}};
  }

  Candidate plain(const Problem&) const override { return to_candidate(plain_choices(threads_)); }
  Candidate estimate(const Problem& problem, const Constraints& constraints) const override {
    const Choices choices = estimate_choices(problem, threads_);
    const std::int64_t room = room_for_scratch(memory_need(problem, choices), constraints, available_memory().bytes);
    return forced_candidate(shrunk_to_fit(problem, choices, room), constraints.forced);
  }
  double estimate_plain_seconds(const Problem& problem) const override { return plain_seconds(problem, threads_); }
  std::vector<Group> groups(const Problem& problem, const Candidate& incumbent) const override {
    return search_groups(problem, parse_choices(incumbent), threads_);
  }
  std::optional<Refusal> refuses(const Problem& problem, const Constraints& constraints,
                                 const Candidate& candidate) const override {
    return cpu::refuses(problem, constraints, candidate);
  }

  std::optional<Refusal> unlike_whole(const Problem& part, const Problem& whole,
                                      const Candidate& candidate) const override {
    return cpu::unlike_whole(part, whole, parse_choices(candidate));
  }

  std::unique_ptr<Plan> prepare(const Problem& problem, const Candidate& candidate) override {
    const Choices choices = parse_choices(candidate);
    if (choices.path == Path::plain) return std::make_unique<PlainPlan>(problem, choices, weights_, arena_);
    return std::make_unique<StackPlan>(problem, choices, weights_, packs_, arena_);
  }

  std::unique_ptr<Workbench> open_workbench(const Problem& problem, const Call& call) override {
    const auto plain = [this](const Call& c) { reference::forward(*weights_, c, threads_); };
    return std::make_unique<CpuWorkbench>(problem, call, plain, threads_);
  }

  std::vector<std::string> approximations(const Candidate& candidate) const override {
    try {
      switch (parse_choices(candidate).precision) {
        case Precision::fp32:
          return {};
        case Precision::bf16_qk:
          return {"Q and K projections in bf16"};
        case Precision::bf16:
          return {"all six projections in bf16"};
      }
    } catch (const Error& error) {  // from a file of another version: to be judged, and then to fail as it does
      return {error.what()};
    }
    return {};
  }
  int complexity(const Candidate& candidate) const override { return cpu::complexity(parse_choices(candidate)); }

  std::string bound(const Problem& problem, const Candidate& candidate, double seconds) const override {
    const Choices choices = parse_choices(candidate);
    const double rate = flops(problem) / seconds, peak = product_peak(choices.threads);
    const double memory =
        2.0 * static_cast<double>(problem.elements() * static_cast<std::int64_t>(size_of(problem.dtype)));
    // The peak is measured once in a process, briefly: other work makes it too low. bf16 may well exceed it.
    const bool doubtful = rate > 1.1 * peak && choices.precision == Precision::fp32;
    const std::string figures = fmt::format(
        "{:.0f} of the {:.0f} GFLOP/s that fp32 products in cache reach ({:.0f} %{}); "
        "input and output move at {:.2f} GB/s",
        rate * 1e-9, peak * 1e-9, 100 * rate / peak, doubtful ? ": measured while the machine was busy" : "",
        memory / seconds * 1e-9);
    if (rate >= 0.6 * peak) return "arithmetic: " + figures;
    if (seconds < 100e-6) return "latency (calls, barriers and short products): " + figures;
    return "memory and elementwise work between the products: " + figures;
  }

  std::int64_t packed_bytes() const override { return packs_.bytes(); }
  void trim() override {
    packs_.trim();
    arena_.trim();
  }

 private:
  const std::shared_ptr<const Weights> weights_;
  const int threads_;
  WeightPacks packs_;
  Arena arena_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(std::shared_ptr<const Weights> weights, const Constraints& constraints) {
  return std::make_unique<CpuBackend>(std::move(weights), constraints);
}

}  // namespace gnomon::cpu
