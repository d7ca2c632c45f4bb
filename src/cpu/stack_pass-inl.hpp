// The stages of a pass, for any team. The row and head items they are made of are in stack_pass.cpp.
#pragma once

#include <utility>

namespace gnomon::cpu {

template <class Team>
void StackPass::run(const Team& team) {
  if (elides_mask()) team.each(sequences_, [&](int, std::int64_t s) { find_keys(s); });
  team.each(row_items(), [&](int, std::int64_t i) { load(rows_of(i)); });
  if (!flags_) return layers(team, plan_.fp32_);

  // Reduced precision is for inputs inside the verified range, and its answer is written only after its check: the
  // input, which may be the output, is still there for the fp32 answer. Flags are read between barriers: all workers
  // agree.
  hold_output_ = true;
  bool reduced = !flags_->outside.load(std::memory_order_relaxed);
  if (reduced) {
    layers(team, plan_.reduced_);
    team.each(row_items(), [&](int, std::int64_t i) { check_finite(rows_of(i)); });
    reduced = !flags_->not_finite.load(std::memory_order_relaxed);
    if (!reduced) team.each(row_items(), [&](int, std::int64_t i) { load(rows_of(i)); });
  }
  if (!reduced) {
    layers(team, plan_.fp32_);
    team.each(1, [&](int, std::int64_t) { plan_.range_fallbacks_.fetch_add(1, std::memory_order_relaxed); });
  }
  team.each(row_items(), [&](int, std::int64_t i) { store(rows_of(i)); });
}

template <class Team>
void StackPass::layers(const Team& team, const Products& products) {
  team.each(row_items(), [&](int worker, std::int64_t i) { project(products, 0, worker, rows_of(i)); });
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const bool by_row = plan_.choices_.partition == Partition::row && plan_.choices_.fused_attention;
    if (!by_row) attend(team, layer);
    team.each(row_items(), [&](int worker, std::int64_t i) {
      const Rows rows = rows_of(i);
      if (by_row) attend_rows(layer, worker, rows);
      finish(products, layer, worker, rows);
      if (layer + 1 < config_.layers)
        project(products, layer + 1, worker, rows);
      else
        complete(rows);
    });
  }
}

template <class Team>
void StackPass::attend(const Team& team, std::int64_t layer) {
  if (!plan_.choices_.fused_attention) return attend_unfused(team, layer);
  team.each(sequences_ * config_.n_heads, [&](int worker, std::int64_t i) {
    attend_head(layer, worker, i / config_.n_heads, i % config_.n_heads, 0, seq_);
  });
}

template <class Team>
void StackPass::attend_unfused(const Team& team, std::int64_t layer) {
  const reference::PlainAttention& a = plan_.plain_attention_.front();
  const std::int64_t heads = config_.n_heads, pairs = sequences_ * heads;
  float* from = owner_ + layout_.scores;
  float* to = owner_ + layout_.weights;
  const auto at = [&](float* tensor, std::int64_t u) { return tensor + u * a.score_floats(); };
  const auto views = [&](std::int64_t u) {
    float* q = qkv(layer, u / heads * seq_) + u % heads * config_.head_dim();
    return reference::HeadViews{0, q, q + d_, q + 2 * d_, q};
  };
  const auto mask = [&](std::int64_t u) {
    if (!call_.mask) return reference::KeyMask{};
    return reference::KeyMask{call_.mask->data + u / heads * call_.mask->strides[0], call_.mask->strides[1]};
  };
  const auto each = [&](auto&& step) {
    team.each(kernels_ ? pairs : 0, [&](int worker, std::int64_t u) { step(worker, u); });
  };
  const auto pass = [&](auto&& step) {  // from one tensor to the other
    each([&](int, std::int64_t u) { step(u, at(from, u), at(to, u)); });
    std::swap(from, to);
  };
  each([&](int worker, std::int64_t u) { a.score(worker, views(u), at(from, u)); });
  pass([&](std::int64_t, const float* s, float* t) { a.scale(s, t); });
  if (config_.causal) pass([&](std::int64_t u, const float* s, float* t) { a.mask_causal(views(u), s, t); });
  if (call_.mask) pass([&](std::int64_t u, const float* s, float* t) { a.mask_keys(mask(u), s, t); });
  pass([&](std::int64_t, const float* s, float* t) { a.softmax(s, t); });
  each([&](int worker, std::int64_t u) { a.weigh(worker, at(from, u), views(u), mask(u)); });
}

}  // namespace gnomon::cpu
