#include "cuda/plain_attention.hpp"

#include <algorithm>
#include <cmath>

#include "cuda/rows.hpp"

namespace gnomon::cuda {
namespace {

constexpr std::int64_t kMostUnits = 32768;  // of one batched product: launch grids end at 65,535 in y and z

}  // namespace

PlainAttention::PlainAttention(Machine& machine, const StackConfig& config, std::int64_t sequences, std::int64_t seq,
                               std::int64_t query_block, bool masked, bool tf32)
    : machine_(machine),
      ops_(machine.kernels),
      config_(config),
      sequences_(sequences),
      seq_(seq),
      query_block_(std::min(query_block, seq)),
      units_(sequences * config.n_heads),
      masked_(masked),
      tf32_(tf32) {
  for (std::int64_t first = 0; first < seq_; first += query_block_) {
    Block& block = blocks_.emplace_back();
    block.first_query = first;
    block.queries = std::min(query_block_, seq_ - first);
    for (std::int64_t unit = 0; unit < units_; unit += kMostUnits)
      block.scores.push_back(scores_product(block.queries, std::min(kMostUnits, units_ - unit)));
  }
}

Product PlainAttention::scores_product(std::int64_t queries, std::int64_t units) const {
  const std::int64_t dim = config_.head_dim();
  return Product(machine_.blas, {.rows = queries,
                                 .in = dim,
                                 .out = seq_,
                                 .ldx = dim,
                                 .ldw = dim,
                                 .ldy = seq_,
                                 .tf32 = tf32_,
                                 .batch = units,
                                 .x_step = seq_ * dim,
                                 .w_step = seq_ * dim,
                                 .y_step = queries * seq_});
}

void PlainAttention::place(Places& places) {
  const std::int64_t elements = sequences_ * seq_ * config_.d_model;
  for (std::size_t& at : heads_) at = places.take(elements, sizeof(float));
  answer_ = places.take(elements, sizeof(float));
  for (std::size_t& at : scores_) at = places.take(units_ * query_block_ * seq_, sizeof(float));
}

std::size_t PlainAttention::workspace_bytes() const {
  std::size_t most = 0;
  for (const Block& block : blocks_) {
    for (const Product& product : block.scores) most = std::max(most, product.workspace_bytes());
  }
  return most;
}

void PlainAttention::add_steps(StepList& steps, std::byte* scratch, const float* q, const float* k, const float* v,
                               float* out, const kernels::MaskBytes& mask, void* workspace) {
  const std::int64_t dim = config_.head_dim();
  const auto floats = [scratch](std::size_t at) { return reinterpret_cast<float*>(scratch + at); };
  const float* const parts[] = {q, k, v};
  kernels::PlainHeads heads{.batch = sequences_,
                            .seq = seq_,
                            .heads = static_cast<kernels::i32>(config_.n_heads),
                            .head_dim = static_cast<kernels::i32>(dim)};
  for (int i = 0; i < 3; ++i) {
    heads.from = parts[i];
    heads.to = floats(heads_[i]);
    steps.add(ops_.split_heads(heads));
  }
  float *a = floats(scores_[0]), *b = floats(scores_[1]);
  for (const Block& block : blocks_) {
    const std::int64_t first = block.first_query * dim;
    for (std::size_t i = 0; i < block.scores.size(); ++i) {
      const std::int64_t unit = static_cast<std::int64_t>(i) * kMostUnits;
      steps.add(ProductStep{&block.scores[i], floats(heads_[0]) + unit * seq_ * dim + first,
                            floats(heads_[1]) + unit * seq_ * dim, a + unit * block.queries * seq_, workspace});
    }
    kernels::PlainScores scores{.units = units_,
                                .queries = block.queries,
                                .first_query = block.first_query,
                                .seq = seq_,
                                .heads = static_cast<kernels::i32>(config_.n_heads),
                                .mask = mask};
    const auto pass = [&](auto launch_of) {
      scores.from = a;
      scores.to = b;
      steps.add(launch_of(scores));
      std::swap(a, b);
    };
    steps.add(ops_.scale(a, 1.0f / std::sqrt(static_cast<float>(dim)), b, units_ * block.queries * seq_));
    std::swap(a, b);
    if (config_.causal) pass([&](const auto& p) { return ops_.mask_causal(p); });
    if (masked_) {
      pass([&](const auto& p) { return ops_.mask_keys(p); });
      steps.follow(offsetof(kernels::PlainScores, mask) + offsetof(kernels::MaskBytes, data),
                   [](const Border& border) { return border.mask; });
    }
    pass([&](const auto& p) { return ops_.softmax(p); });
    scores.from = a;
    scores.to = floats(answer_);
    steps.add(ops_.weigh({.scores = scores,
                          .v = floats(heads_[2]),
                          .head_dim = static_cast<kernels::i32>(dim),
                          .causal = config_.causal}));
    if (masked_) {
      steps.follow(offsetof(kernels::PlainWeigh, scores) + offsetof(kernels::PlainScores, mask) +
                       offsetof(kernels::MaskBytes, data),
                   [](const Border& border) { return border.mask; });
    }
  }
  heads.from = floats(answer_);
  heads.to = out;
  steps.add(ops_.merge_heads(heads));
}

}  // namespace gnomon::cuda
