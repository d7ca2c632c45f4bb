#include "cuda/cuda_backend.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "cuda/choice_facts.hpp"
#include "cuda/cuda_workbench.hpp"
#include "cuda/device_plan.hpp"
#include "cuda/idle_driver.hpp"
#include "cuda/nvrtc.hpp"
#include "cuda/plain_pass.hpp"
#include "cuda/resident_pass.hpp"
#include "cuda/search_space.hpp"
#include "cuda/stack_pass.hpp"

#ifndef GNOMON_VERSION
#error "GNOMON_VERSION is the build's to define"
#endif

namespace gnomon::cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(int ordinal, std::shared_ptr<const Weights> weights, const Constraints& constraints,
              std::shared_ptr<Compiler> compiler)
      : device_(Device::shared(ordinal)), config_(weights->config()), constraints_(constraints) {
    nvrtc();  // what is missing is missed here, in one line, and not when a plan wants it
    const Device::Current current(*device_);
    machine_ = std::make_shared<Machine>(device_, std::move(weights), std::move(compiler));
  }
  ~CudaBackend() override {
    const Device::Current current(*device_);
    machine_.reset();
  }

  Environment environment() const override {
    const DeviceProperties& p = properties();
    Environment environment = {.device = p.name,
                               .facts = {{"compute_capability", fmt::format("{}.{}", p.major, p.minor)},
                                         {"multiprocessors", std::to_string(p.multiprocessors)},
                                         {"nvrtc", nvrtc().version_text},
                                         {"cublaslt", cublaslt().version_text},
                                         {"cudnn", cudnn_missing().empty() ? cudnn().version_text : "none"},
                                         {"kernels", fmt::format("{:016x}", kernel_sources_hash())},
                                         {"gnomon", GNOMON_VERSION}},
                               .notes = {{"driver", std::to_string(driver().version)}}};
    if (const Architecture used = device_->architecture(); used != Architecture::of_device(p.major, p.minor))
      environment.facts["architecture"] = used.name();  // GNOMON_CUDA_ARCH
    return environment;
  }

  Candidate plain(const Problem&) const override { return to_candidate(plain_choices()); }
  Candidate estimate(const Problem& problem, const Constraints& constraints) const override {
    const Candidate best = forced_candidate(estimate_choices(problem, constraints, properties()), constraints.forced);
    if (!refuses(problem, constraints, best)) return best;
    return forced_candidate(estimate_stack(problem, constraints, properties()), constraints.forced);
  }
  double estimate_plain_seconds(const Problem& problem) const override { return plain_seconds(problem, properties()); }
  std::vector<Group> groups(const Problem& problem, const Candidate& incumbent) const override {
    const Choices choices = parse_choices(incumbent);
    compile_tiles_ahead(problem, choices);
    return search_groups(problem, choices, properties());
  }
  std::optional<Refusal> refuses(const Problem& problem, const Constraints& constraints,
                                 const Candidate& candidate) const override {
    return cuda::refuses(problem, constraints, candidate, properties());
  }
  std::optional<Refusal> unlike_whole(const Problem& part, const Problem& whole,
                                      const Candidate& candidate) const override {
    return cuda::unlike_whole(part, whole, parse_choices(candidate));
  }

  std::unique_ptr<Plan> prepare(const Problem& problem, const Candidate& candidate) override {
    const Choices choices = parse_choices(candidate);
    const Device::Current current(*device_);
    return std::make_unique<DevicePlan>(choices.path == Path::plain ? plain_parts(problem)
                                                                    : stack_parts(problem, choices));
  }

  void require_time_to_plan(const Call& call) const override {
    const Device::Current current(*device_);
    if (!is_capturing(static_cast<CUstream>(call.stream))) return;
    throw_caller(
        "this call has no plan in memory, and its stream is being captured: make one such call before the capture");
  }

  KeptCall keep(const Problem& problem, const Call& call) override {
    const Device::Current current(*device_);
    return keep_call(machine_, problem, call);
  }

  std::unique_ptr<Workbench> open_workbench(const Problem& problem, const Call& call) override {
    compile_ahead(problem);
    return std::make_unique<CudaWorkbench>(machine_, problem, call);
  }

  std::vector<std::string> approximations(const Candidate& candidate) const override {
    try {
      return cuda::approximations(config_, parse_choices(candidate));
    } catch (const Error& error) {  // from a file of another version: to be judged, and then to fail as it does
      return {error.what()};
    }
  }
  int complexity(const Candidate& candidate) const override { return cuda::complexity(parse_choices(candidate)); }
  std::string bound(const Problem& problem, const Candidate& candidate, double seconds) const override {
    return cuda::bound(problem, parse_choices(candidate), seconds, properties());
  }

  std::int64_t packed_bytes() const override { return machine_->weights.bytes(); }
  // Where cuBLASLt launches by itself, it asks its own driver.
  std::shared_ptr<void> idle_device(const Candidate& candidate) override {
    const Choices choices = parse_choices(candidate);
    if (!choices.graph && choices.path != Path::resident) return {};
    return std::make_shared<IdleDriver>(*device_);
  }
  void trim() override {
    const Device::Current current(*device_);
    machine_->weights.trim();
    machine_->arena.trim();
  }

 private:
  const DeviceProperties& properties() const { return device_->properties(); }

  // What the search will want, in the background: a form of the resident kernel takes seconds to compile, a tile of
  // attention one. Tiles are wanted when no form is in their way.
  void compile_ahead(const Problem& problem) const {
    const ResidentSpec spec = resident_spec(problem, problem.batch);
    std::vector<KernelSource> forms;
    if (!constraints_.fp32_only) {
      for (const ResidentForm& form : resident_forms(spec, properties())) forms.push_back(resident_source(spec, form));
    }
    if (forms.empty()) return compile_tiles_ahead(problem, estimate_stack(problem, constraints_, properties()));
    machine_->kernels.compiler().ahead(std::move(forms), device_->architecture());
  }
  void compile_tiles_ahead(const Problem& problem, const Choices& choices) const {
    if (choices.path != Path::stack || !choices.fused_attention) return;
    const AttentionSpec spec = attention_spec(config_, choices, problem.batch, problem.seq, problem.mask);
    std::vector<KernelSource> tiles;
    for (const AttentionTile& tile : attention_tiles(spec, properties())) tiles.push_back(attention_source(spec, tile));
    machine_->kernels.compiler().ahead(std::move(tiles), device_->architecture());
  }

  DevicePlan::Parts plain_parts(const Problem& problem) {
    DevicePlan::Parts parts;
    parts.machine = machine_;
    parts.pass = std::make_unique<SlicedPass>(problem.batch, problem.batch, [&](std::int64_t sequences) {
      return std::make_unique<PlainPass>(*machine_, sequences, problem.seq, problem.seq, problem.mask);
    });
    return parts;
  }

  DevicePlan::Parts stack_parts(const Problem& problem, const Choices& choices) {
    DevicePlan::Parts parts;
    parts.machine = machine_;
    parts.graph = choices.graph;
    const std::int64_t slice = choices.slices == 0 ? problem.batch : std::min(choices.slices, problem.batch);
    const auto sliced = [&](const Choices& chosen, const PassGuard& guard) {
      return std::make_unique<SlicedPass>(problem.batch, slice, [&](std::int64_t sequences) -> std::unique_ptr<Pass> {
        if (chosen.path == Path::resident) {
          const ResidentSpec spec = resident_spec(problem, sequences);
          const auto form = form_of(chosen, spec, properties());
          if (!form)
            throw_environment("'{}' is no form of the resident kernel for {}", chosen.tile, to_string(problem));
          return std::make_unique<ResidentPass>(*machine_, spec, *form, problem.dtype, guard);
        }
        return std::make_unique<StackPass>(*machine_, chosen, sequences, problem.seq, problem.dtype, problem.mask,
                                           guard);
      });
    };
    if (all_fp32(choices)) {
      parts.pass = sliced(choices, {});
      return parts;
    }
    parts.commits = problem.inplace;
    parts.guard = std::make_unique<RangeGuard>(*machine_);
    PassGuard guard{.role = PassGuard::Role::guarded,
                    .range = parts.guard->range(),
                    .flag = parts.guard->flag(),
                    .answered = parts.guard->answered(),
                    .commit = parts.commits,
                    .answers = choices.path == Path::resident && resident_answers(problem, slice, properties())};
    parts.pass = sliced(choices, guard);
    if (guard.answers) return parts;
    guard.role = PassGuard::Role::fallback;
    parts.fallback = fallback(problem, choices, guard);
    return parts;
  }

  std::unique_ptr<SlicedPass> fallback(const Problem& problem, const Choices& choices, const PassGuard& guard) {
    const Choices c = fallback_choices(problem, choices, properties());
    const std::int64_t slice = choices.slices == 0 ? problem.batch : std::min(choices.slices, problem.batch);
    return std::make_unique<SlicedPass>(problem.batch, slice, [&](std::int64_t sequences) {
      return std::make_unique<StackPass>(*machine_, c, sequences, problem.seq, problem.dtype, problem.mask, guard,
                                         fallback_queries(problem, choices));
    });
  }

  const std::shared_ptr<const Device> device_;
  const StackConfig config_;
  const Constraints constraints_;
  std::shared_ptr<Machine> machine_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int ordinal, std::shared_ptr<const Weights> weights,
                                           const Constraints& constraints) {
  return make_cuda_backend(ordinal, std::move(weights), constraints, std::make_shared<Compiler>());
}

std::unique_ptr<Backend> make_cuda_backend(int ordinal, std::shared_ptr<const Weights> weights,
                                           const Constraints& constraints, std::shared_ptr<Compiler> compiler) {
  return std::make_unique<CudaBackend>(ordinal, std::move(weights), constraints, std::move(compiler));
}

}  // namespace gnomon::cuda
