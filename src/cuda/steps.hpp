// What a plan does on the device, as a list made once and run many times: launches of our kernels, products of
// cuBLASLt, attention of cuDNN. Only our kernels touch the caller's tensors, so that a captured list can be pointed at
// others.
#pragma once

#include <array>
#include <cstring>
#include <variant>
#include <vector>

#include "cuda/cudnn_session.hpp"
#include "cuda/kernel.hpp"
#include "cuda/product.hpp"

namespace gnomon::cuda {

// Any Launch<Params>, by its bytes.
class KernelStep {
 public:
  template <typename Params>
  explicit KernelStep(const Launch<Params>& launch)
      : kernel_(launch.kernel), shape_(launch.shape), bytes_(sizeof(Params)) {
    static_assert(sizeof(Params) <= kMostBytes && std::is_trivially_copyable_v<Params>);
    std::memcpy(params_.data(), &launch.params, sizeof(Params));
  }
  void run(CUstream stream) const { kernel_->launch_bytes(stream, shape_, params_.data(), bytes_); }
  // Puts an address, or another value, into the params at its offset in their struct.
  template <typename T>
  void put(std::size_t offset, T value) {
    std::memcpy(params_.data() + offset, &value, sizeof value);
  }
  void load() const { kernel_->load(); }
  CUDA_KERNEL_NODE_PARAMS node_params(void** slot);

 private:
  static constexpr std::size_t kMostBytes = 320;
  const Kernel* kernel_;
  LaunchShape shape_;
  std::size_t bytes_;
  alignas(16) std::array<std::byte, kMostBytes> params_{};
};

struct ProductStep {
  const Product* product;
  const void *x, *w;
  void *y, *workspace;
  void run(CUstream stream) const { product->run(stream, x, w, y, workspace); }
};

// The addresses that a call brings along: its tensors' first elements.
struct Border {
  const void* input = nullptr;
  const void* mask = nullptr;
  void* output = nullptr;
};
// Where a step holds one of them.
struct BorderPatch {
  std::size_t step, offset;  // of the pointer in the step's params
  const void* (*address)(const Border&);
};

class StepList {
 public:
  template <typename Params>
  std::size_t add(const Launch<Params>& launch) {
    steps_.emplace_back(std::in_place_type<KernelStep>, launch);
    return steps_.size() - 1;
  }
  void add(const ProductStep& product) { steps_.emplace_back(product); }
  void add(const DnnAttentionStep& attention) { steps_.emplace_back(attention); }
  // The last step's pointer at `offset` of its params follows the border.
  void follow(std::size_t offset, const void* (*address)(const Border&)) {
    patches_.push_back({steps_.size() - 1, offset, address});
  }

  // The last step decides: the steps after it are the body, which a graph runs under a condition when they come as
  // another list's fallback. The condition's handle is the step's parameter at `offset`.
  void decides_at(std::size_t offset) { condition_ = {steps_.size() - 1, offset}; }
  bool body_touches_border() const;

  void run(CUstream stream, const Border& border);

  // The same, captured on a stream of ours: a replay costs one launch. Addresses that differ from the last replay's are
  // put into the nodes. `fallback`: what follows, its body under its condition; it is only read. Without `own`, the
  // graph is the fallback alone.
  void capture(CUstream ours, const StepList* fallback, bool own);
  bool captured(bool with_fallback) const { return exec_ && with_fallback == with_fallback_; }
  void replay(CUstream stream, const Border& border);

  StepList() = default;
  ~StepList();
  StepList(const StepList&) = delete;
  StepList& operator=(const StepList&) = delete;

 private:
  using Step = std::variant<KernelStep, ProductStep, DnnAttentionStep>;
  struct Place {
    std::size_t step = 0, offset = 0;
  };
  // A captured step that follows the border.
  struct Follower {
    struct Pointer {
      std::size_t offset;
      const void* (*address)(const Border&);
      const void* current;
    };
    KernelStep step;
    CUgraphNode node;
    std::vector<Pointer> pointers;
  };
  void load() const;
  void forget_graph();
  void capture_steps(CUstream ours, const StepList& list, std::size_t first, std::size_t end,
                     CUgraphConditionalHandle condition);
  CUgraphNode capture_section(CUstream ours, CUgraph graph, CUgraphNode after, const StepList& list, std::size_t first,
                              std::size_t end, CUgraphConditionalHandle condition);
  void capture_fallback(CUstream ours, const StepList& fallback, CUgraphNode last);

  std::vector<Step> steps_;
  std::vector<BorderPatch> patches_;
  Place condition_;
  std::vector<Follower> followers_;
  bool with_fallback_ = false;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

}  // namespace gnomon::cuda
