// The stack with its countermeasures: products of cuBLASLt, of each sublayer in one precision, and between them our
// kernels; all statistics in fp32, and the residual stream too, or packed to three bytes an element.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "cuda/attention.hpp"
#include "cuda/choices.hpp"
#include "cuda/norm.hpp"
#include "cuda/pass_guard.hpp"
#include "cuda/plain_attention.hpp"

namespace gnomon::cuda {

class StackPass final : public Pass {
 public:
  // `query_block`: query rows whose scores are stored at a time where attention is not fused; 0: all.
  StackPass(Machine& machine, const Choices& choices, std::int64_t sequences, std::int64_t seq, DType border,
            bool masked, const PassGuard& guard, std::int64_t query_block = 0);

  std::size_t scratch_bytes() const override { return places_.end(); }
  void write_steps(StepList& steps, const Scratch& scratch, const Call& part, const BorderLayout& layout) override;

 private:
  struct Layer {
    std::deque<Product> qkv;  // one, or three
    std::optional<Product> out, fc1, fc2;
  };
  class Writer;

  bool keeps_result() const { return guard_.keeps_result(); }
  void bind_layers();
  void place(std::size_t workspace);
  Product product(Sublayer sublayer, ProductSpec spec, std::int64_t bias, int algorithm) const;

  DType type_of(Sublayer sublayer) const { return operand_type(choices_, sublayer); }
  // Of what the sublayer gives, to be added to the residual.
  DType branch_type(Sublayer sublayer) const { return choices_.fused_norm ? type_of(sublayer) : DType::f32; }
  const WeightsCopy& weights_of(DType type) const { return type == DType::f32 ? *wide_ : *narrow_; }
  // Where the sublayer finds the rows that it works on: in fp32 behind a norm that is the residual stream itself.
  std::size_t operand_of(Sublayer sublayer) const {
    return type_of(sublayer) == DType::f32 && config_.norm == NormPlacement::post ? x_ : n_;
  }

  Machine& machine_;
  const StackConfig& config_;
  const Choices choices_;
  const std::int64_t sequences_, seq_, rows_;
  const DType border_;  // of the caller's tensors
  const bool masked_;
  const PassGuard guard_;
  const std::int64_t ffn_rows_;                       // that go through the FFN at a time
  std::shared_ptr<const WeightsCopy> wide_, narrow_;  // fp32; of the 16-bit operands' type, if any are
  std::deque<Layer> layers_;
  std::optional<PlainAttention> plain_attention_;
  std::optional<AttentionTile> tile_;
  std::shared_ptr<const DnnAttention> cudnn_;  // in place of our own
  Places places_;
  std::size_t x_ = 0, n_ = 0, remainder_ = 0, q_[3] = {}, attended_ = 0, branch_ = 0, hidden_ = 0, branch2_ = 0,
              sum_ = 0, mask_ = 0, result_ = 0, told_ = 0, workspace_ = 0;
};

// The attention that a pass would launch; `alignment` from the rows of Q|K|V.
AttentionSpec attention_spec(const StackConfig& config, const Choices& choices, std::int64_t sequences,
                             std::int64_t seq, bool masked);
std::optional<AttentionTile> tile_of(const Choices& choices, const AttentionSpec& spec, const DeviceProperties& device);

// By arithmetic, without a device: what a StackPass claims, its workspace taken at its most.
std::size_t stack_scratch_bytes(const StackConfig& config, const Choices& choices, std::int64_t sequences,
                                std::int64_t seq, DType border, bool masked, bool keeps_result,
                                std::int64_t query_block);

}  // namespace gnomon::cuda
