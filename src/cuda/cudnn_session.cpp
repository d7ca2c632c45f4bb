#include "cuda/cudnn_session.hpp"

#include <algorithm>
#include <iterator>

#include "core/error.hpp"
#include "core/fingerprint.hpp"
#include "core/log.hpp"

namespace gnomon::cuda {
namespace {

constexpr std::size_t kMostKept = 8;

std::string to_string(const AttentionSpec& s) {
  return fmt::format("cuDNN's attention {} b{} s{} h{} of {} {}", name_of(s.dtype), s.batch, s.seq, s.heads, s.head_dim,
                     s.causal ? "causal" : "bi");
}

bool same(const AttentionSpec& a, const AttentionSpec& b) {
  return a.dtype == b.dtype && a.batch == b.batch && a.seq == b.seq && a.heads == b.heads && a.head_dim == b.head_dim &&
         a.causal == b.causal;
}

}  // namespace

DnnSession::DnnSession(Arena& arena, const DeviceProperties& device, KernelCache cache)
    : arena_(arena), device_(device), cache_(std::move(cache)) {
  check_dnn(cudnn().create(&maker_), "cudnnCreate");
  if (const int status = cudnn().create(&runner_); status != dnn::success) {
    cudnn().destroy(maker_);
    check_dnn(status, "cudnnCreate");
  }
}

DnnSession::~DnnSession() {
  arena_.wait();
  kept_.clear();
  cudnn().destroy(runner_);
  cudnn().destroy(maker_);
}

std::shared_ptr<const DnnAttention> DnnSession::attention(const AttentionSpec& spec) {
  const std::lock_guard lock(making_);
  const auto found = std::ranges::find_if(kept_, [&](const auto& one) { return same(one.first, spec); });
  if (found != kept_.end()) {
    kept_.splice(kept_.end(), kept_, found);
  } else {
    kept_.emplace_back(spec, make(spec));
    drop_unused();
  }
  return kept_.back().second;
}

// A plan holds its compiled kernel, so it is kept where ours are, and made anew where it is not taken.
std::shared_ptr<const DnnAttention> DnnSession::make(const AttentionSpec& spec) const {
  const DnnTarget target{.handle = maker_, .device_json = {}};
  CompiledKernel file;
  file.source = to_string(spec);
  file.architecture = fmt::format("sm_{}{}", device_.major, device_.minor);
  file.compiler = "cuDNN " + cudnn().version_text;
  const std::string text = fmt::format("{}{}\n{}\n{} {} {}", KernelCache::kFormat, file.compiler, file.source,
                                       file.architecture, device_.name, device_.multiprocessors);
  const std::string name =
      fmt::format("{:016x}{:016x}", hash_bytes(text.data(), text.size(), 1), hash_bytes(text.data(), text.size(), 2));
  if (const auto known = cache_.read(name)) {
    try {
      return std::make_shared<const DnnAttention>(spec, target, known->image);
    } catch (const Error& error) {
      log::warn_once("cuDNN's kept plans",
                     fmt::format("a kept plan of {} is made anew: {}", file.source, error.what()));
    }
  }
  auto made = std::make_shared<const DnnAttention>(spec, target);
  try {
    if (cache_.enabled()) file.image = made->kept();
    cache_.write(name, file);
  } catch (const Error& error) {
    log::warn_once("cuDNN's kept plans",
                   fmt::format("plans of {} are kept in memory only: {}", file.compiler, error.what()));
  }
  return made;
}

void DnnSession::drop_unused() {
  bool waited = false;
  for (auto one = kept_.begin(); kept_.size() > kMostKept && one != std::prev(kept_.end());) {
    if (one->second.use_count() > 1) {
      ++one;
      continue;
    }
    if (!waited) arena_.wait();
    waited = true;
    one = kept_.erase(one);
  }
}

void DnnSession::run(CUstream stream, const DnnAttention& attention, const DnnDescriptor& arguments) {
  const std::lock_guard lock(running_);
  check_dnn(cudnn().set_stream(runner_, stream), "cudnnSetStream");
  check_dnn(cudnn().execute(runner_, attention.plan(), arguments.get()), "cudnnBackendExecute");
}

}  // namespace gnomon::cuda
