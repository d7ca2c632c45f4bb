#include "cuda/steps.hpp"

#include <algorithm>
#include <utility>

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

StepList::~StepList() { forget_graph(); }

// All kernels: not while the driver takes what is asked of it for the capture.
void StepList::load() const {
  for (const Step& step : steps_) {
    if (const auto* const kernel = std::get_if<KernelStep>(&step)) kernel->load();
  }
}

void StepList::forget_graph() {
  if (exec_) driver().cuGraphExecDestroy(exec_);
  if (graph_) driver().cuGraphDestroy(graph_);
  exec_ = nullptr;
  graph_ = nullptr;
  followers_.clear();
}

void StepList::run(CUstream stream, const Border& border) {
  for (const BorderPatch& patch : patches_)
    std::get<KernelStep>(steps_[patch.step]).put(patch.offset, patch.address(border));
  for (const Step& step : steps_) std::visit([stream](const auto& one) { one.run(stream); }, step);
}

bool StepList::body_touches_border() const {
  return std::ranges::any_of(patches_, [this](const BorderPatch& p) { return p.step > condition_.step; });
}

// Runs steps into a stream that is being captured, and remembers the nodes that follow the border.
void StepList::capture_steps(CUstream ours, const StepList& list, std::size_t first, std::size_t end,
                             CUgraphConditionalHandle condition) {
  for (std::size_t s = first; s < end; ++s) {
    Step step = list.steps_[s];
    if (condition != 0 && s == list.condition_.step) std::get<KernelStep>(step).put(list.condition_.offset, condition);
    std::visit([ours](const auto& one) { one.run(ours); }, step);
    std::vector<Follower::Pointer> pointers;
    for (const BorderPatch& patch : list.patches_) {
      if (patch.step == s) pointers.push_back({patch.offset, patch.address, nullptr});
    }
    if (!pointers.empty()) followers_.push_back({std::get<KernelStep>(step), last_node(ours), std::move(pointers)});
  }
}

// Adds steps to a graph, after a node of it (null: none), and returns the last node there then is.
CUgraphNode StepList::capture_section(CUstream ours, CUgraph graph, CUgraphNode after, const StepList& list,
                                      std::size_t first, std::size_t end, CUgraphConditionalHandle condition) {
  if (first == end) return after;
  check(driver().cuStreamBeginCaptureToGraph(ours, graph, after ? &after : nullptr, nullptr, after ? 1 : 0,
                                             CU_STREAM_CAPTURE_MODE_RELAXED),
        "cuStreamBeginCaptureToGraph");
  CUgraph same = nullptr;
  CUgraphNode reached = nullptr;
  try {
    capture_steps(ours, list, first, end, condition);
    reached = last_node(ours);
  } catch (...) {
    driver().cuStreamEndCapture(ours, &same);
    throw;
  }
  check(driver().cuStreamEndCapture(ours, &same), "cuStreamEndCapture");
  return reached;
}

void StepList::capture_fallback(CUstream ours, const StepList& fallback, CUgraphNode last) {
  CUcontext context = nullptr;
  check(driver().cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  CUgraphConditionalHandle condition = 0;
  check(driver().cuGraphConditionalHandleCreate(&condition, graph_, context, 0, /*flags=*/0),
        "cuGraphConditionalHandleCreate");
  const std::size_t body = fallback.condition_.step + 1;
  last = capture_section(ours, graph_, last, fallback, 0, body, condition);
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = condition;
  params.conditional.type = CU_GRAPH_COND_TYPE_IF;
  params.conditional.size = 1;
  params.conditional.ctx = context;
  CUgraphNode node = nullptr;
  check(driver().cuGraphAddNode_v1(&node, graph_, &last, 1, &params), "cuGraphAddNode");
  capture_section(ours, params.conditional.phGraph_out[0], nullptr, fallback, body, fallback.steps_.size(), 0);
}

void StepList::capture(CUstream ours, const StepList* fallback, bool own) {
  forget_graph();
  load();
  if (fallback) fallback->load();
  with_fallback_ = fallback != nullptr;
  CUgraphNode last = nullptr;
  if (own) {
    check(driver().cuStreamBeginCapture(ours, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
    try {
      capture_steps(ours, *this, 0, steps_.size(), 0);
      last = last_node(ours);
    } catch (...) {
      driver().cuStreamEndCapture(ours, &graph_);
      throw;
    }
    check(driver().cuStreamEndCapture(ours, &graph_), "cuStreamEndCapture");
  } else {
    check(driver().cuGraphCreate(&graph_, 0), "cuGraphCreate");
  }
  if (fallback) capture_fallback(ours, *fallback, last);
  check(driver().cuGraphInstantiate(&exec_, graph_, 0), "cuGraphInstantiate");
}

void StepList::replay(CUstream stream, const Border& border) {
  for (Follower& follower : followers_) {
    bool moved = false;
    for (Follower::Pointer& pointer : follower.pointers) {
      const void* const wanted = pointer.address(border);
      if (pointer.current == wanted) continue;
      follower.step.put(pointer.offset, wanted);
      pointer.current = wanted;
      moved = true;
    }
    if (!moved) continue;
    void* slot = nullptr;
    const CUDA_KERNEL_NODE_PARAMS params = follower.step.node_params(&slot);
    check(driver().cuGraphExecKernelNodeSetParams(exec_, follower.node, &params), "cuGraphExecKernelNodeSetParams");
  }
  check(driver().cuGraphLaunch(exec_, stream), "cuGraphLaunch");
}

}  // namespace gnomon::cuda
