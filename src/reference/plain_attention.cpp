#include "reference/plain_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/vec_kernels.hpp"

namespace gnomon::reference {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

bool all_finite(const float* rows, std::int64_t ld, std::int64_t n, std::int64_t width) {
  for (std::int64_t r = 0; r < n; ++r) {
    bool finite = true;
    cpu::vec_kernels().max_abs_finite(rows + r * ld, width, &finite);
    if (!finite) return false;
  }
  return true;
}

}  // namespace

PlainAttention::PlainAttention(std::int64_t queries, std::int64_t seq, std::int64_t head_dim, std::int64_t ld_qkv,
                               std::int64_t ld_out, bool causal, int workers)
    : queries_(queries),
      seq_(seq),
      head_dim_(head_dim),
      ld_qkv_(ld_qkv),
      ld_out_(ld_out),
      causal_(causal),
      scores_(queries, seq, head_dim, ld_qkv, ld_qkv, seq, /*b_transposed=*/true, workers),
      values_(queries, head_dim, seq, seq, ld_qkv, ld_out, /*b_transposed=*/false, workers) {}

void PlainAttention::score(int worker, const HeadViews& head, float* scores) const {
  scores_.run(worker, head.q + head.q0 * ld_qkv_, head.k, scores);
}

void PlainAttention::scale(const float* scores, float* to) const {
  cpu::vec_kernels().scale(scores, to, queries_ * seq_, 1.0f / std::sqrt(static_cast<float>(head_dim_)));
}

void PlainAttention::mask_causal(const HeadViews& head, const float* scores, float* to) const {
  for (std::int64_t q = 0; q < queries_; ++q, scores += seq_, to += seq_) {
    const std::int64_t visible = head.q0 + q + 1;
    std::copy_n(scores, visible, to);
    std::fill(to + visible, to + seq_, kMinusInf);
  }
}

void PlainAttention::mask_keys(const KeyMask& mask, const float* scores, float* to) const {
  for (std::int64_t q = 0; q < queries_; ++q, scores += seq_, to += seq_) {
    for (std::int64_t k = 0; k < seq_; ++k) to[k] = mask.at(k) ? scores[k] : kMinusInf;
  }
}

void PlainAttention::softmax(const float* scores, float* weights) const {
  cpu::vec_kernels().softmax(scores, seq_, weights, seq_, queries_, seq_);
}

void PlainAttention::weigh(int worker, const float* weights, const HeadViews& head, const KeyMask& mask) const {
  float* const first = head.out + head.q0 * ld_out_;
  if (all_finite(head.v, ld_qkv_, seq_, head_dim_)) return values_.run(worker, weights, head.v, first);
  for (std::int64_t q = 0; q < queries_; ++q) {
    float* out = first + q * ld_out_;
    std::fill_n(out, head_dim_, 0.0f);
    const std::int64_t end = causal_ ? head.q0 + q + 1 : seq_;
    for (std::int64_t k = 0; k < end; ++k) {
      if (!mask.at(k)) continue;
      for (std::int64_t f = 0; f < head_dim_; ++f) out[f] += weights[q * seq_ + k] * head.v[k * ld_qkv_ + f];
    }
  }
}

}  // namespace gnomon::reference
