#include "cuda/steps.hpp"

#include "core/error.hpp"

namespace gnomon::cuda {
namespace {

// The node that the last launch into a capturing stream became.
CUgraphNode last_node(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* nodes = nullptr;
  std::size_t count = 0;
  check(driver().cuStreamGetCaptureInfo_v2(stream, &status, nullptr, nullptr, &nodes, &count),
        "cuStreamGetCaptureInfo_v2");
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || count != 1)
    throw_internal("a capture has {} last nodes (status {}), expected one", count, static_cast<int>(status));
  return nodes[0];
}

}  // namespace

CUDA_KERNEL_NODE_PARAMS KernelStep::node_params(void** slot) {
  *slot = params_.data();
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = kernel_->function();
  node.gridDimX = static_cast<unsigned>(shape_.blocks);
  node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = static_cast<unsigned>(shape_.threads);
  node.blockDimY = node.blockDimZ = 1;
  node.sharedMemBytes = static_cast<unsigned>(shape_.dynamic_shared_bytes);
  node.kernelParams = slot;
  return node;
}

StepList::~StepList() {
  if (exec_) driver().cuGraphExecDestroy(exec_);
  if (graph_) driver().cuGraphDestroy(graph_);
}

void StepList::run(CUstream stream, const Border& border) {
  for (const BorderPatch& patch : patches_)
    std::get<KernelStep>(steps_[patch.step]).put(patch.offset, patch.address(border));
  for (const Step& step : steps_) std::visit([stream](const auto& one) { one.run(stream); }, step);
}

void StepList::capture(CUstream ours) {
  check(driver().cuStreamBeginCapture(ours, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  try {
    nodes_.assign(patches_.size(), nullptr);
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      std::visit([ours](const auto& one) { one.run(ours); }, steps_[s]);
      for (std::size_t p = 0; p < patches_.size(); ++p) {
        if (patches_[p].step == s) nodes_[p] = last_node(ours);
      }
    }
  } catch (...) {
    CUgraph broken = nullptr;
    driver().cuStreamEndCapture(ours, &broken);
    if (broken) driver().cuGraphDestroy(broken);
    throw;
  }
  check(driver().cuStreamEndCapture(ours, &graph_), "cuStreamEndCapture");
  check(driver().cuGraphInstantiate(&exec_, graph_, 0), "cuGraphInstantiate");
  current_.assign(patches_.size(), nullptr);
}

void StepList::replay(CUstream stream, const Border& border) {
  for (std::size_t p = 0; p < patches_.size(); ++p) {
    const void* const wanted = patches_[p].address(border);
    if (current_[p] == wanted) continue;
    KernelStep& step = std::get<KernelStep>(steps_[patches_[p].step]);
    step.put(patches_[p].offset, wanted);
    void* slot = nullptr;
    const CUDA_KERNEL_NODE_PARAMS params = step.node_params(&slot);
    check(driver().cuGraphExecKernelNodeSetParams(exec_, nodes_[p], &params), "cuGraphExecKernelNodeSetParams");
    current_[p] = wanted;
  }
  check(driver().cuGraphLaunch(exec_, stream), "cuGraphLaunch");
}

}  // namespace gnomon::cuda
