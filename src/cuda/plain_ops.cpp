#include "cuda/plain_ops.hpp"

#include <algorithm>

#include "cuda/instantiate.hpp"

namespace gnomon::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;  // the kernels walk on in steps of the whole grid

std::int64_t score_rows(const kernels::PlainScores& p) { return p.units * p.queries; }

}  // namespace

// `threads`: that the work would fill.
template <typename Params>
Launch<Params> PlainOps::launch(const char* kernel, const Params& params, std::int64_t threads) const {
  const std::int64_t blocks = std::clamp<std::int64_t>((threads + kThreads - 1) / kThreads, 1, kMostBlocks);
  return {
      &library_.get(instantiate("plain_ops.cuh", kernel, kThreads)), {.blocks = blocks, .threads = kThreads}, params};
}

Launch<kernels::PlainElements> PlainOps::add(const float* a, const float* b, float* to, std::int64_t n) const {
  return launch("plain_add", kernels::PlainElements{.a = a, .b = b, .to = to, .n = n}, n);
}
Launch<kernels::PlainElements> PlainOps::add_bias(const float* x, const float* bias, float* to, std::int64_t rows,
                                                  std::int64_t width) const {
  const kernels::PlainElements p{
      .a = x, .b = bias, .to = to, .n = rows * width, .width = static_cast<kernels::i32>(width)};
  return launch("plain_add_bias", p, p.n);
}
Launch<kernels::PlainElements> PlainOps::scale(const float* x, float factor, float* to, std::int64_t n) const {
  return launch("plain_scale", kernels::PlainElements{.a = x, .to = to, .n = n, .factor = factor}, n);
}
Launch<kernels::PlainHeads> PlainOps::split_heads(const kernels::PlainHeads& p) const {
  return launch("plain_split_heads", p, p.batch * p.seq * p.heads * 32);
}
Launch<kernels::PlainHeads> PlainOps::merge_heads(const kernels::PlainHeads& p) const {
  return launch("plain_merge_heads", p, p.batch * p.seq * p.heads * 32);
}
Launch<kernels::PlainScores> PlainOps::mask_causal(const kernels::PlainScores& p) const {
  return launch("plain_mask_causal", p, score_rows(p) * 32);
}
Launch<kernels::PlainScores> PlainOps::mask_keys(const kernels::PlainScores& p) const {
  return launch("plain_mask_keys", p, score_rows(p) * 32);
}
Launch<kernels::PlainScores> PlainOps::softmax(const kernels::PlainScores& p) const {
  return launch("plain_softmax", p, score_rows(p) * 32);
}
Launch<kernels::PlainWeigh> PlainOps::weigh(const kernels::PlainWeigh& p) const {
  return launch("plain_weigh", p, score_rows(p.scores) * 32);
}
Launch<kernels::PlainNorm> PlainOps::norm(const kernels::PlainNorm& p) const {
  return launch("plain_norm", p, p.rows * 32);
}

}  // namespace gnomon::cuda
