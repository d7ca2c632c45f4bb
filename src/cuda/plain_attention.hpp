// Attention as the formula is written, in fp32: Q, K and V copied to [B, H, S, head_dim], scores stored, scaled,
// masked, put through softmax, multiplied with V, and the answer copied back; a block of query rows of all heads at a
// time.
#pragma once

#include <cstdint>
#include <deque>

#include "core/stack_config.hpp"
#include "cuda/machine.hpp"
#include "cuda/pass.hpp"
#include "cuda/plain_ops.hpp"

namespace gnomon::cuda {

class PlainAttention {
 public:
  // `query_block` = seq stores all scores, as eager PyTorch does.
  PlainAttention(Machine& machine, const StackConfig& config, std::int64_t sequences, std::int64_t seq,
                 std::int64_t query_block, bool masked, bool tf32);

  // Adds its buffers to `places`; where they lie is remembered for add_steps.
  void place(Places& places);
  std::size_t workspace_bytes() const;

  // q, k, v, out: [sequences * seq, d], contiguous.
  void add_steps(StepList& steps, std::byte* scratch, const float* q, const float* k, const float* v, float* out,
                 const kernels::MaskBytes& mask, void* workspace);

 private:
  struct Block {
    std::int64_t first_query, queries;
    std::deque<Product> scores;  // one for each run of units that a batched product takes
  };
  Product scores_product(std::int64_t queries, std::int64_t units) const;

  Machine& machine_;
  PlainOps ops_;
  const StackConfig config_;
  std::int64_t sequences_, seq_, query_block_, units_;
  bool masked_, tf32_;
  std::deque<Block> blocks_;
  std::size_t heads_[3] = {}, answer_ = 0, scores_[2] = {};
};

}  // namespace gnomon::cuda
