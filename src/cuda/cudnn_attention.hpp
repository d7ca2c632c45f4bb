// cuDNN's fused attention: the graph of softmax(scale * Q K^T + causal mask) V, which its engines know as one kernel.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda/arena.hpp"
#include "cuda/attention.hpp"
#include "cuda/cudnn.hpp"

namespace gnomon::cuda {

inline constexpr const char* kCudnnTile = "cudnn";  // beside the names of our own tiles

// By the problem alone; whether the library is there is the last thing that is looked at.
std::optional<std::string> refuses_cudnn_attention(const AttentionSpec& spec);

// What a plan is made for: the device of a handle, or one that is described (JSON in the library's own words) and need
// not be there; that one cannot run.
struct DnnTarget {
  dnn::Handle handle = nullptr;
  std::string device_json;
};

class DnnAttention {
 public:
  // The library's best guess of an engine, compiled where it has to be: up to a second. Environment error in the
  // library's words when it has none for this problem.
  DnnAttention(const AttentionSpec& spec, const DnnTarget& target);
  DnnAttention(const DnnAttention&) = delete;
  DnnAttention& operator=(const DnnAttention&) = delete;

  std::size_t workspace_bytes() const { return workspace_; }
  // The plan's arguments: Q, K and V side by side in rows of 3 * d_model, an output of d_model.
  DnnDescriptor arguments(const void* qkv, void* out, void* workspace) const;
  dnn::RawDescriptor plan() const { return plan_->get(); }

 private:
  void write(const DnnTarget& target);
  void choose_engine(const DnnTarget& target);

  const AttentionSpec spec_;
  const float scale_, hidden_;                       // by value: read when the plan runs
  std::vector<DnnDescriptor> tensors_, operations_;  // kept for as long as the plan, which refers to them
  std::optional<DnnDescriptor> graph_, device_, plan_;
  std::size_t workspace_ = 0;
};

// A machine's use of the library. A handle is one thread's at a time: one is for making plans, which takes long, and
// one for running them.
class DnnSession {
 public:
  explicit DnnSession(Arena& arena);  // of the passes that its attention runs in
  ~DnnSession();
  DnnSession(const DnnSession&) = delete;
  DnnSession& operator=(const DnnSession&) = delete;

  // Made once for a problem and kept: a search prepares dozens of candidates with the same attention. What nobody holds
  // goes when there are many, after the last pass: a kernel of it may still be running.
  std::shared_ptr<const DnnAttention> attention(const AttentionSpec& spec);
  void run(CUstream stream, const DnnAttention& attention, const DnnDescriptor& arguments);

  std::size_t kept() const { return kept_.size(); }

 private:
  void drop_unused();

  Arena& arena_;
  std::mutex making_, running_;
  dnn::Handle maker_ = nullptr, runner_ = nullptr;
  std::list<std::pair<AttentionSpec, std::shared_ptr<const DnnAttention>>> kept_;  // the last used one is last
};

// One attention of a pass, its addresses bound.
struct DnnAttentionStep {
  DnnSession* session;
  std::shared_ptr<const DnnAttention> attention;
  std::shared_ptr<const DnnDescriptor> arguments;
  void run(CUstream stream) const { session->run(stream, *attention, *arguments); }
};

}  // namespace gnomon::cuda
