#include "cli/first_calls.hpp"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "cli/workload.hpp"
#include "core/error.hpp"
#include "engine/device_plugin.hpp"

namespace gnomon::cli {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t seed = 1;
constexpr int later_calls = 15;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = fs::temp_directory_path() / "gnomon-first-calls-XXXXXX";
    if (!::mkdtemp(pattern.data())) throw_environment("{}: {}", pattern, std::strerror(errno));
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// The variable that backends find their compiled kernels by, while it lives.
class KernelsIn {
 public:
  explicit KernelsIn(const fs::path& folder) {
    if (const char* value = std::getenv(name)) before_ = value;
    ::setenv(name, folder.c_str(), 1);
  }
  ~KernelsIn() { before_ ? ::setenv(name, before_->c_str(), 1) : ::unsetenv(name); }
  KernelsIn(const KernelsIn&) = delete;
  KernelsIn& operator=(const KernelsIn&) = delete;

 private:
  static constexpr const char* name = "GNOMON_KERNEL_CACHE";
  std::optional<std::string> before_;
};

class Measurement {
 public:
  Measurement(const Problem& problem, const Weights& weights, const EngineOptions& options)
      : problem_(problem),
        weights_(weights),
        options_(options),
        memory_(make_device_memory(problem.device)),
        workload_(problem, seed) {}

  FirstCall first_call(std::vector<double>* later = nullptr) {
    Weights weights = weights_;
    FirstCall result;
    double start = steady_clock().now();
    const auto seconds = [&start] {
      const double before = std::exchange(start, steady_clock().now());
      return start - before;
    };
    Engine engine(std::move(weights), options_);
    result.engine_seconds = seconds();
    answer(engine);
    result.seconds = seconds();
    for (int i = 0; later && i < later_calls; ++i) {
      answer(engine);
      later->push_back(seconds());
    }
    const std::optional<PlanRecord> record = engine.explain(problem_);
    if (!record) throw_internal("the engine does not know {} after a call with it", to_string(problem_));
    if (engine.stats().problems_planned > 0) result.planning_seconds = record->planning_seconds;
    result.cut_short = record->budget_exhausted;
    result.plan = record->winner.to_string();
    return result;
  }

 private:
  void answer(Engine& engine) {
    engine.forward(workload_.call());
    if (memory_) memory_->synchronize();
  }

  const Problem& problem_;
  const Weights& weights_;
  const EngineOptions& options_;
  const std::unique_ptr<DeviceMemory> memory_;
  Workload workload_;
};

}  // namespace

FirstCalls measure_first_calls(const Problem& problem, const Weights& weights, EngineOptions options) {
  const TemporaryFolder folder;
  const KernelsIn kernels(folder.path() / "kernels");
  options.plan_directory = folder.path() / "plans";
  Measurement measurement(problem, weights, options);
  FirstCalls result;
  result.nothing_kept = measurement.first_call();
  fs::remove_all(*options.plan_directory);
  result.kernels_kept = measurement.first_call();
  std::vector<double> later;
  result.plans_kept = measurement.first_call(&later);
  result.later = quartiles(later);
  return result;
}

}  // namespace gnomon::cli
