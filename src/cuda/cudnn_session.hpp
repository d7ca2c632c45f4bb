// cuDNN's attention in an engine: its plans are made once and kept, in memory and on disk, and run on any stream.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "cuda/arena.hpp"
#include "cuda/cudnn_attention.hpp"
#include "cuda/kernel_cache.hpp"

namespace gnomon::cuda {

// A machine's use of the library. A handle is one thread's at a time: one is for making plans, which takes long, and
// one for running them.
class DnnSession {
 public:
  // The arena of the passes that its attention runs in, the device that is current, and where its plans are kept.
  DnnSession(Arena& arena, const DeviceProperties& device, KernelCache cache);
  ~DnnSession();
  DnnSession(const DnnSession&) = delete;
  DnnSession& operator=(const DnnSession&) = delete;

  // Made once for a problem and kept: a search prepares dozens of candidates with the same attention. In memory, what
  // nobody holds goes when there are many, after the last pass: a kernel of it may still be running.
  std::shared_ptr<const DnnAttention> attention(const AttentionSpec& spec);
  void run(CUstream stream, const DnnAttention& attention, const DnnDescriptor& arguments);

  std::size_t kept() const { return kept_.size(); }  // in memory

 private:
  std::shared_ptr<const DnnAttention> make(const AttentionSpec& spec) const;
  void drop_unused();

  Arena& arena_;
  const DeviceProperties device_;
  const KernelCache cache_;
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
