// cuDNN's fused attention: the graph of softmax(scale * Q K^T + causal mask) V, which its engines know as one kernel.
#pragma once

#include <optional>
#include <string>
#include <vector>

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
  // From what kept() said in another process, its kernel included: a millisecond. Environment error when the library
  // does not take it.
  DnnAttention(const AttentionSpec& spec, const DnnTarget& target, const std::string& kept);
  DnnAttention(const DnnAttention&) = delete;
  DnnAttention& operator=(const DnnAttention&) = delete;

  std::size_t workspace_bytes() const { return workspace_; }
  // The plan's arguments: Q, K and V side by side in rows of 3 * d_model, an output of d_model.
  DnnDescriptor arguments(const void* qkv, void* out, void* workspace) const;
  dnn::RawDescriptor plan() const { return plan_->get(); }
  std::string kept() const;

 private:
  void describe_device(const DnnTarget& target);
  void write(const DnnTarget& target);
  void choose_engine();
  void take(DnnDescriptor plan);  // environment error when it wants too much workspace

  const AttentionSpec spec_;
  const float scale_, hidden_;                       // by value: read when the plan runs
  std::vector<DnnDescriptor> tensors_, operations_;  // kept for as long as the plan, which refers to them
  std::optional<DnnDescriptor> graph_, device_, plan_;
  std::size_t workspace_ = 0;
};

}  // namespace gnomon::cuda
