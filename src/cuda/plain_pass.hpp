// The reference on the device: the plain forward pass, operator by operator in fp32, each a pass of its own over
// memory. It is the baseline that plans are timed against, and the oracle that they are judged by. The defects that it
// keeps on purpose are those of src/reference/plain_pass.hpp.
#pragma once

#include <deque>
#include <memory>

#include "cuda/plain_attention.hpp"

namespace gnomon::cuda {

class PlainPass final : public Pass {
 public:
  // `query_block` = seq stores the scores of all heads, as eager PyTorch does.
  PlainPass(Machine& machine, std::int64_t sequences, std::int64_t seq, std::int64_t query_block, bool masked);

  std::size_t scratch_bytes() const override { return places_.end(); }
  static std::size_t scratch_bytes(const StackConfig& config, std::int64_t sequences, std::int64_t seq,
                                   std::int64_t query_block);
  void write_steps(StepList& steps, const Scratch& scratch, const Call& part, const BorderLayout& layout) override;

 private:
  struct Layer {
    Product q, k, v, out, fc1, fc2;
  };
  void add_layer(StepList& steps, const Scratch& scratch, std::size_t index, const kernels::MaskBytes& mask, float* x,
                 float* y);
  void add_norm(StepList& steps, const NormAt& at, const float* x, float* y) const;
  float* floats(const Scratch& scratch, std::size_t at) const { return reinterpret_cast<float*>(scratch + at); }

  Machine& machine_;
  const StackConfig& config_;
  std::shared_ptr<const WeightsCopy> weights_;
  std::int64_t rows_;
  std::vector<Layer> layers_;
  PlainAttention attention_;
  Places places_;
  std::size_t x_[2], rows_of_d_[4], hidden_[2], workspace_;
};

}  // namespace gnomon::cuda
