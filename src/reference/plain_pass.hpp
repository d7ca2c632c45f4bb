// The reference: the plain forward pass, operator by operator over library products in fp32, each a pass of its own
// over memory. It is the baseline that plans are timed against, and the oracle that they are judged by.
//
// The defects it keeps on purpose are numbered in docs/architecture.md. Its passes are those of PyTorch eager: a linear
// layer first fills its output with the bias (addmm copies it there) and adds the product to it; Q, K and V are copied
// to [B, H, S, head_dim] for the batched products and attention's answer is copied back; scaling, masking, softmax and
// GELU each read one tensor and write another. Where it is kinder: memory is reused between operators, masked_fill is
// one pass instead of two, and an operator costs no dispatch. Where it does more: each head's V is looked at for NaN
// and Inf, so that 0 * NaN of an invisible key spoils nothing (S reads for S^2 multiply-adds).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/tensor.hpp"
#include "core/weights.hpp"
#include "cpu/product.hpp"
#include "cpu/team.hpp"
#include "reference/plain_attention.hpp"

namespace gnomon::reference {

class PlainPass {
 public:
  // A pass over `batch` sequences of `seq` tokens. `query_block` = seq stores the scores of all heads, as eager does;
  // less computes that many query rows at a time and keeps only their scores.
  PlainPass(const Weights& weights, std::int64_t batch, std::int64_t seq, std::int64_t query_block, int workers);

  std::int64_t scratch_floats() const { return scratch_floats_; }
  static std::int64_t scratch_floats(const StackConfig& config, std::int64_t batch, std::int64_t seq,
                                     std::int64_t query_block, int workers);

  // call's input has `batch` sequences; `scratch` holds scratch_floats() floats on a cache line.
  void run(const Call& call, float* scratch);

 private:
  struct Buffers;
  struct Linear {
    std::span<const float> bias;
    std::vector<cpu::Product> by_rows;  // one for each number of rows that a worker's share can have
  };
  struct Layer {
    const LayerWeights* weights;
    Linear q, k, v, out, fc1, fc2;
  };

  void layer(const Layer& layer, const Call& call, const Buffers& b, const float* x, float* y);
  void attention(const Call& call, const Buffers& b);
  void attend_stored(const Call& call, const Buffers& b);
  void attend_blocked(const Call& call, const Buffers& b);
  void split_heads(const float* from, float* to);
  void merge_heads(const float* from, float* to);
  void linear(const Linear& linear, const float* x, std::int64_t ldx, float* y, std::int64_t ldy);
  void norm(const NormWeights& norm, const float* x, float* y);
  void add(const float* a, const float* b, float* y);
  void activate(const float* x, float* y);
  template <class F>  // f(worker, first row, rows)
  void each_row_block(F&& f);
  HeadViews head(const Buffers& b, std::int64_t unit, std::int64_t q0) const;
  KeyMask key_mask(const Call& call, std::int64_t unit) const;

  const Weights& weights_;
  const StackConfig& config_;
  std::int64_t batch_, seq_, query_block_, rows_, rows_per_block_;
  int workers_;
  std::int64_t scratch_floats_;
  std::vector<Layer> layers_;
  std::vector<PlainAttention> attention_;  // whole blocks, then the remainder if there is one
};

// The oracle: the reference's answer to `call`, computed a few sequences and query rows at a time so that it needs
// little memory at any size.
void forward(const Weights& weights, const Call& call, int workers);

}  // namespace gnomon::reference
