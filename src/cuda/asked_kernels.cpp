#include "cuda/asked_kernels.hpp"

#include <charconv>
#include <deque>
#include <map>
#include <set>

#include "core/error.hpp"
#include "cuda/absent_device.hpp"
#include "cuda/choices.hpp"
#include "cuda/cuda_backend.hpp"
#include "cuda/device_buffer.hpp"
#include "plan/calibration.hpp"

namespace gnomon::cuda {
namespace {

// Seconds of the reference path in the smallest part that is foreseen: of plannings with half a second or more.
constexpr double kShortestPass = 0.01;

// Notes what it is asked for and compiles nothing: a kernel's image is its number.
class Notes final : public Compiler {
 public:
  Notes() : Compiler(std::filesystem::path()) {}

  std::shared_ptr<const CompiledKernel> get(const KernelSource& source, const Architecture&) override {
    const auto [found, added] = numbers_.emplace(source.to_string(), kernels_.size());
    if (added) kernels_.push_back(source);
    CompiledKernel kernel;
    kernel.image = std::to_string(found->second);
    kernel.symbol = "absent";
    return std::make_shared<const CompiledKernel>(std::move(kernel));
  }
  void ahead(std::vector<KernelSource> sources, const Architecture& architecture) override {
    for (const KernelSource& source : sources) get(source, architecture);
  }
  const std::vector<KernelSource>& kernels() const { return kernels_; }

 private:
  std::map<std::string, std::size_t> numbers_;
  std::vector<KernelSource> kernels_;
};

// What tells candidates apart that ask for other kernels: neither how they are launched, nor which products, nor on how
// many sequences at a time.
std::string kernels_of(const Candidate& candidate) {
  Choices c = parse_choices(candidate);
  c.graph = false;
  c.algo_qkv = c.algo_out = c.algo_fc1 = c.algo_fc2 = 0;
  c.slices = 0;
  return to_candidate(c).to_string();
}

// Tensors of a problem in the absent device's memory.
struct AbsentCall {
  explicit AbsentCall(const Problem& problem)
      : input(bytes_of(problem)), output(bytes_of(problem)), mask(static_cast<std::size_t>(problem.tokens())) {
    const std::array<std::int64_t, 3> shape = {problem.batch, problem.seq, problem.config.d_model};
    call.input = ConstTensorView::contiguous(input.data(), problem.dtype, shape);
    call.output = TensorView::contiguous(problem.inplace ? input.data() : output.data(), problem.dtype, shape);
    if (problem.mask) call.mask = MaskView{mask.as<std::uint8_t>(), {problem.batch, problem.seq}, {problem.seq, 1}};
  }
  static std::size_t bytes_of(const Problem& problem) {
    return static_cast<std::size_t>(problem.elements()) * size_of(problem.dtype);
  }
  DeviceBuffer input, output, mask;
  Call call;
};

// The search from every candidate that it leads to.
class Walk {
 public:
  Walk(Backend& backend, const Problem& problem, AskedKernels& asked)
      : backend_(backend), problem_(problem), asked_(asked), absent_(problem) {}

  void run() {
    const auto bench = backend_.open_workbench(problem_, absent_.call);
    for (const Candidate& start : {backend_.plain(problem_), backend_.estimate(problem_, {})}) add(start);
    for (; !open_.empty(); open_.pop_front()) {
      look_into(*bench, open_.front());
      for (const Group& group : backend_.groups(problem_, open_.front())) {
        for (const auto& changes : group.alternatives) add(open_.front().with(changes));
      }
    }
  }

 private:
  void add(const Candidate& candidate) {
    if (backend_.refuses(problem_, {}, candidate)) return;
    if (seen_.insert(kernels_of(candidate)).second) open_.push_back(candidate);
  }

  void look_into(Workbench& bench, const Candidate& candidate) {
    try {
      const auto plan = backend_.prepare(problem_, candidate);
      plan->set_verified_range(bench.input_range());
      bench.check(*plan);
      ++asked_.candidates;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::environment) throw;
      asked_.missed.push_back(fmt::format("{} with {}: {}", to_string(problem_), candidate.to_string(), error.what()));
    }
  }

  Backend& backend_;
  const Problem& problem_;
  AskedKernels& asked_;
  AbsentCall absent_;
  std::set<std::string> seen_;
  std::deque<Candidate> open_;
};

// The problem, and the parts of other lengths that a planning with little time times in its place.
std::vector<Problem> with_parts(const Backend& backend, const Problem& problem) {
  std::vector<Problem> all = {problem};
  Problem part = problem;
  while (backend.estimate_plain_seconds(part) > kShortestPass && shrink(part)) {
    if (part.seq != all.back().seq) all.push_back(part);
  }
  return all;
}

}  // namespace

AskedKernels asked_kernels(const Architecture& architecture, std::span<const Problem> problems) {
  const AbsentDevice device(architecture);
  const auto notes = std::make_shared<Notes>();
  AskedKernels asked;
  for (const Problem& problem : problems) {
    const auto weights = std::make_shared<const Weights>(Weights::random(problem.config, 0));
    const auto backend = make_cuda_backend(0, weights, {}, notes);
    for (const Problem& part : with_parts(*backend, problem)) Walk(*backend, part, asked).run();
  }
  for (std::size_t i = 0; i < notes->kernels().size(); ++i)
    asked.kernels.push_back({notes->kernels()[i], std::max(0, device.dynamic_shared_bytes(i))});
  return asked;
}

}  // namespace gnomon::cuda
