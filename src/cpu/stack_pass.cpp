#include "cpu/stack_pass.hpp"

#include <algorithm>
#include <cmath>

#include "cpu/row_io.hpp"
#include "cpu/vec_kernels.hpp"

namespace gnomon::cpu {

StackPass::StackPass(StackPlan& plan, const Call& call, float* base, std::int64_t slice, int owner, bool kernels)
    : plan_(plan),
      layout_(plan.layout_),
      config_(plan.problem_.config),
      call_(sequences_of(call, slice * layout_.slice_sequences,
                         std::min(layout_.slice_sequences, plan.problem_.batch - slice * layout_.slice_sequences))),
      kernels_(kernels),
      d_(config_.d_model),
      seq_(plan.problem_.seq),
      sequences_(call_.input.shape[0]),
      slice_rows_(sequences_ * seq_),
      block_rows_(layout_.rows_of_block(slice_rows_)),
      owner_(base + owner * layout_.owner_floats),
      workers_(base + layout_.owners * layout_.owner_floats),
      flags_(plan.flags_ ? &plan.flags_[slice] : nullptr) {}

StackPass::Rows StackPass::rows_of(std::int64_t item) const {
  const std::int64_t first = item * block_rows_;
  return {first, std::min(block_rows_, slice_rows_ - first)};
}

void StackPass::load(const Rows& rows) {
  if (!kernels_) return;
  load_rows(call_.input, rows.first, rows.count, x(rows));
  if (flags_ && !in_verified_range(rows)) flags_->outside.store(true, std::memory_order_relaxed);
}

// Padding is often all zeros. Nobody sees such a row's keys, and its own answer was measured to be as good as others.
bool StackPass::in_verified_range(const Rows& rows) const {
  const float smallest = plan_.smallest_row_.load(std::memory_order_relaxed);
  const float largest = plan_.largest_row_.load(std::memory_order_relaxed);
  for (std::int64_t r = rows.first; r < rows.first + rows.count; ++r) {
    const float size = vec_kernels().row_rms(owner_ + layout_.x + r * d_, d_);
    const bool inside = size >= smallest && size <= largest;  // so that a NaN admits nothing
    const bool empty_padding = size == 0 && call_.mask && !call_.mask->valid(r / seq_, r % seq_);
    if (!inside && !empty_padding) return false;
  }
  return true;
}

void StackPass::find_keys(std::int64_t sequence) {
  if (!kernels_) return;
  auto* keys = reinterpret_cast<std::int32_t*>(owner_ + layout_.keys) + sequence * seq_;
  const std::uint8_t* valid = call_.mask->data + sequence * call_.mask->strides[0];
  std::int32_t count = 0;
  for (std::int64_t k = 0; k < seq_; ++k) {
    if (valid[k * call_.mask->strides[1]]) keys[count++] = static_cast<std::int32_t>(k);
  }
  reinterpret_cast<std::int32_t*>(owner_ + layout_.key_counts)[sequence] = count;
}

const LayerProducts& StackPass::products_of(const Products& products, std::int64_t layer, const Rows& rows) const {
  std::size_t i = 0;
  while (products[i].rows != rows.count) ++i;
  return products[i].layers[static_cast<std::size_t>(layer)];
}

// x as a product wants it: as it is, or its rows in bf16 side by side.
const void* StackPass::operand(bool bf16, int worker, const float* from, std::int64_t ldx, std::int64_t width,
                               std::int64_t rows) {
  if (!bf16) return from;
  auto* narrow = reinterpret_cast<std::uint16_t*>(worker_part(worker, layout_.narrow));
  for (std::int64_t r = 0; r < rows; ++r) vec_kernels().to_bf16(from + r * ldx, narrow + r * width, width);
  return narrow;
}

void StackPass::project(const Products& products, std::int64_t layer, int worker, const Rows& rows) {
  if (!kernels_) return;
  const LayerProducts& p = products_of(products, layer, rows);
  const float* from = x(rows);
  if (config_.norm == NormPlacement::pre) {
    float* normed = worker_part(worker, layout_.norm);
    norm(plan_.weights_->layers()[static_cast<std::size_t>(layer)].norm1, from, d_, normed, d_, rows.count);
    from = normed;
  }
  const void* narrow = nullptr;
  for (const LayerProducts::Projection& projection : p.qkv) {
    const bool bf16 = projection.product.spec().bf16;
    if (bf16 && !narrow) narrow = operand(true, worker, from, d_, d_, rows.count);
    projection.product.run(worker, bf16 ? narrow : from, qkv(layer, rows.first) + projection.column);
  }
}

void StackPass::attend_head(std::int64_t layer, int worker, std::int64_t sequence, std::int64_t head,
                            std::int64_t q_begin, std::int64_t q_end) {
  if (!kernels_) return;
  float* q = qkv(layer, sequence * seq_) + head * config_.head_dim();
  HeadAttention a{.q = q,
                  .k = q + d_,
                  .v = q + 2 * d_,
                  .out = q,
                  .ldq = 3 * d_,
                  .ldk = 3 * d_,
                  .ldv = 3 * d_,
                  .ldo = 3 * d_,
                  .seq = seq_,
                  .head_dim = config_.head_dim(),
                  .q_begin = q_begin,
                  .q_end = q_end,
                  .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim())),
                  .causal = config_.causal,
                  .causal_skip = plan_.choices_.causal_skip,
                  .keys = nullptr,
                  .n_keys = seq_,
                  .key_valid = nullptr,
                  .key_valid_stride = 0,
                  .scratch = worker_part(worker, layout_.attention)};
  if (elides_mask()) {
    a.n_keys = reinterpret_cast<const std::int32_t*>(owner_ + layout_.key_counts)[sequence];
    if (a.n_keys < seq_) a.keys = reinterpret_cast<const std::int32_t*>(owner_ + layout_.keys) + sequence * seq_;
  } else if (call_.mask) {
    a.key_valid = call_.mask->data + sequence * call_.mask->strides[0];
    a.key_valid_stride = call_.mask->strides[1];
  }
  vec_kernels().head_attention(a);
}

void StackPass::attend_rows(std::int64_t layer, int worker, const Rows& rows) {
  for (std::int64_t row = rows.first, end = rows.first + rows.count; row < end;) {
    const std::int64_t sequence = row / seq_, q_begin = row % seq_;
    const std::int64_t q_end = std::min(seq_, q_begin + end - row);
    for (std::int64_t head = 0; head < config_.n_heads; ++head)
      attend_head(layer, worker, sequence, head, q_begin, q_end);
    row += q_end - q_begin;
  }
}

// x += product(from), in the product's own sum or as a pass of its own.
void StackPass::residual_product(const Product& product, int worker, const void* from, const Rows& rows) {
  if (plan_.choices_.fused_norm) return product.run(worker, from, x(rows));
  float* sum = worker_part(worker, layout_.norm);
  product.run(worker, from, sum);
  vec_kernels().add(x(rows), d_, sum, d_, x(rows), d_, rows.count, d_);
}

void StackPass::feed_forward(const LayerProducts& p, const float* from, int worker, const Rows& rows) {
  const bool bf16 = p.fc1.front().spec().bf16;
  const std::int64_t f = config_.d_ff;
  float* hidden = worker_part(worker, layout_.hidden);
  p.fc1.front().run(worker, operand(bf16, worker, from, d_, d_, rows.count), hidden);
  if (!plan_.choices_.gemm_gelu) {
    const VecKernels& vec = vec_kernels();
    switch (config_.activation) {
      case Activation::gelu_erf:
        vec.gelu_erf(hidden, hidden, rows.count * f);
        break;
      case Activation::gelu_tanh:
        vec.gelu_tanh(hidden, hidden, rows.count * f);
        break;
      case Activation::relu:
        vec.relu(hidden, hidden, rows.count * f);
        break;
    }
  }
  residual_product(p.fc2.front(), worker, operand(bf16, worker, hidden, f, f, rows.count), rows);
}

void StackPass::finish(const Products& products, std::int64_t layer, int worker, const Rows& rows) {
  if (!kernels_) return;
  const LayerProducts& p = products_of(products, layer, rows);
  const LayerWeights& w = plan_.weights_->layers()[static_cast<std::size_t>(layer)];
  const bool pre = config_.norm == NormPlacement::pre;
  const bool bf16 = p.out.front().spec().bf16;

  residual_product(p.out.front(), worker, operand(bf16, worker, qkv(layer, rows.first), 3 * d_, d_, rows.count), rows);
  float* from = x(rows);
  if (pre) from = worker_part(worker, layout_.norm);
  norm(pre ? w.norm2 : w.norm1, x(rows), d_, from, d_, rows.count);
  feed_forward(p, from, worker, rows);
  if (pre) return;
  const bool last = layer + 1 == config_.layers && !config_.final_norm;
  if (last && norm_into_output(w.norm2, rows)) return;
  norm(w.norm2, x(rows), d_, x(rows), d_, rows.count);
}

void StackPass::complete(const Rows& rows) {
  if (!kernels_) return;
  if (const NormWeights* final_norm = plan_.weights_->final_norm()) {
    if (norm_into_output(*final_norm, rows)) return;
    norm(*final_norm, x(rows), d_, x(rows), d_, rows.count);
  }
  // A post-norm stack's last norm may already have written the output.
  std::int64_t ld = 0;
  const bool written = !config_.final_norm && config_.norm == NormPlacement::post && direct_rows(call_.output, 0, &ld);
  if (!hold_output_ && !written) store(rows);
}

bool StackPass::norm_into_output(const NormWeights& weights, const Rows& rows) {
  std::int64_t ld = 0;
  float* out = hold_output_ ? nullptr : direct_rows(call_.output, rows.first, &ld);
  if (!out) return false;
  norm(weights, x(rows), d_, out, ld, rows.count);
  return true;
}

void StackPass::check_finite(const Rows& rows) {
  if (!kernels_) return;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    bool finite = true;
    vec_kernels().max_abs_finite(x(rows) + r * d_, d_, &finite);
    if (!finite) flags_->not_finite.store(true, std::memory_order_relaxed);
  }
}

void StackPass::store(const Rows& rows) {
  if (kernels_) store_rows(x(rows), rows.first, rows.count, call_.output);
}

void StackPass::norm(const NormWeights& weights, const float* from, std::int64_t ldx, float* to, std::int64_t ldy,
                     std::int64_t rows) const {
  vec_kernels().layer_norm(from, ldx, to, ldy, rows, d_, weights.weight.data(),
                           weights.bias.empty() ? nullptr : weights.bias.data(), static_cast<float>(config_.eps));
}

}  // namespace gnomon::cpu
