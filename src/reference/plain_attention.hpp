// Attention as the formula is written: scores stored, scaled, masked, put through softmax into a second tensor,
// multiplied with V. A unit is a block of query rows of one (sequence, head) pair: all S of them as PyTorch eager runs
// it, fewer where the oracle must live with little memory.
#pragma once

#include <cstdint>

#include "cpu/product.hpp"

namespace gnomon::reference {

// Where a head's rows lie: q, k, v and out are [S, head_dim]; q0 is the block's first query.
struct HeadViews {
  std::int64_t q0;
  const float* q;
  const float* k;
  const float* v;
  float* out;
};

struct KeyMask {
  const std::uint8_t* valid = nullptr;  // null: every key is valid
  std::int64_t stride = 1;
  bool at(std::int64_t key) const { return !valid || valid[key * stride] != 0; }
};

class PlainAttention {
 public:
  // Rows of q, k, v are ld_qkv floats apart, rows of out ld_out.
  PlainAttention(std::int64_t queries, std::int64_t seq, std::int64_t head_dim, std::int64_t ld_qkv,
                 std::int64_t ld_out, bool causal, int workers);

  // Floats of one unit, in each of the two tensors that the passes go back and forth between.
  std::int64_t score_floats() const { return queries_ * seq_; }
  // The passes, in order, each from one [queries, S] tensor of the unit to the other.
  void score(int worker, const HeadViews& head, float* scores) const;
  void scale(const float* scores, float* to) const;
  void mask_causal(const HeadViews& head, const float* scores, float* to) const;
  void mask_keys(const KeyMask& mask, const float* scores, float* to) const;
  void softmax(const float* scores, float* weights) const;
  // A weight of 0 must hide a value that is not finite (0 * NaN is NaN): such units go key by key.
  void weigh(int worker, const float* weights, const HeadViews& head, const KeyMask& mask) const;

 private:
  std::int64_t queries_, seq_, head_dim_, ld_qkv_, ld_out_;
  bool causal_;
  cpu::PlainProduct scores_, values_;
};

}  // namespace gnomon::reference
