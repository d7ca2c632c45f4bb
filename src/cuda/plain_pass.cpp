#include "cuda/plain_pass.hpp"

#include <algorithm>

#include "cuda/activation.hpp"
#include "cuda/border_steps.hpp"

namespace gnomon::cuda {
namespace {

Product linear(Machine& machine, const WeightsCopy& weights, std::int64_t rows, std::int64_t in, std::int64_t out,
               std::int64_t bias) {
  return Product(machine.blas,
                 {.rows = rows, .in = in, .out = out, .ldx = in, .ldw = in, .ldy = out, .bias = weights.at(bias)});
}

}  // namespace

PlainPass::PlainPass(Machine& machine, std::int64_t sequences, std::int64_t seq, std::int64_t query_block, bool masked)
    : machine_(machine),
      config_(machine.weights.config()),
      weights_(machine.weights.copy(DType::f32, machine.kernels, machine.ours)),
      rows_(sequences * seq),
      attention_(machine, config_, sequences, seq, query_block, masked, /*tf32=*/false) {
  const std::int64_t d = config_.d_model, f = config_.d_ff;
  std::size_t workspace = attention_.workspace_bytes();
  for (const LayerAt& at : machine.weights.layout().layers) {
    const auto projection = [&](std::int64_t part) {
      return linear(machine, *weights_, rows_, d, d, at.qkv.bias < 0 ? -1 : at.qkv.bias + part * d);
    };
    layers_.push_back(
        {projection(0), projection(1), projection(2), linear(machine, *weights_, rows_, d, d, at.out.bias),
         linear(machine, *weights_, rows_, d, f, at.fc1.bias), linear(machine, *weights_, rows_, f, d, at.fc2.bias)});
    const Layer& layer = layers_.back();
    for (const Product* product : {&layer.q, &layer.k, &layer.v, &layer.out, &layer.fc1, &layer.fc2})
      workspace = std::max(workspace, product->workspace_bytes());
  }
  for (std::size_t& at : x_) at = places_.take(rows_ * d, sizeof(float));
  for (std::size_t& at : rows_of_d_) at = places_.take(rows_ * d, sizeof(float));
  workspace_ = places_.take(static_cast<std::int64_t>(workspace), 1);
  // The FFN's tensors take the place of attention's.
  const std::size_t common = places_.end();
  attention_.place(places_);
  const std::size_t with_attention = places_.end();
  places_.back_to(common);
  for (std::size_t& at : hidden_) at = places_.take(rows_ * f, sizeof(float));
  places_.at_least(with_attention);
}

std::size_t PlainPass::scratch_bytes(const StackConfig& config, std::int64_t sequences, std::int64_t seq,
                                     std::int64_t query_block) {
  const double rows = static_cast<double>(sequences) * static_cast<double>(seq);
  const double scores =
      2 * static_cast<double>(sequences * config.n_heads * std::min(query_block, seq)) * static_cast<double>(seq);
  const double attention = 4 * rows * static_cast<double>(config.d_model) + scores;
  const double ffn = 2 * rows * static_cast<double>(config.d_ff);
  const double floats = 6 * rows * static_cast<double>(config.d_model) + std::max(attention, ffn);
  return static_cast<std::size_t>(std::min(floats * sizeof(float) + kMostWorkspace, 1e18));
}

void PlainPass::add_norm(StepList& steps, const NormAt& at, const float* x, float* y) const {
  steps.add(PlainOps(machine_.kernels)
                .norm({.x = x,
                       .weight = weights_->floats(at.weight),
                       .shift = weights_->floats(at.bias),
                       .y = y,
                       .rows = rows_,
                       .width = static_cast<kernels::i32>(config_.d_model),
                       .eps = static_cast<float>(config_.eps)}));
}

// x is the layer's input and becomes its output; y is a tensor of the same size.
void PlainPass::add_layer(StepList& steps, const Scratch& scratch, std::size_t index, const kernels::MaskBytes& mask,
                          float* x, float* y) {
  const Layer& layer = layers_[index];
  const LayerAt& at = machine_.weights.layout().layers[index];
  const std::int64_t d = config_.d_model;
  const PlainOps ops(machine_.kernels);
  void* const workspace = scratch + workspace_;
  float *const q = floats(scratch, rows_of_d_[0]), *const k = floats(scratch, rows_of_d_[1]),
               *const v = floats(scratch, rows_of_d_[2]), *const t = floats(scratch, rows_of_d_[3]);
  float *const h = floats(scratch, hidden_[0]), *const g = floats(scratch, hidden_[1]);
  const auto multiply = [&](const Product& product, const float* from, std::int64_t weight, float* to) {
    steps.add(ProductStep{&product, from, weights_->at(weight), to, workspace});
  };
  const bool pre = config_.norm == NormPlacement::pre;

  if (pre) add_norm(steps, at.norm1, x, t);
  const float* const attended = pre ? t : x;
  multiply(layer.q, attended, at.qkv.weight, q);
  multiply(layer.k, attended, at.qkv.weight + d * d, k);
  multiply(layer.v, attended, at.qkv.weight + 2 * d * d, v);
  attention_.add_steps(steps, scratch.data, q, k, v, t, mask, workspace);
  multiply(layer.out, t, at.out.weight, q);
  steps.add(ops.add(x, q, y, rows_ * d));
  if (!pre) add_norm(steps, at.norm1, y, x);
  float *const middle = pre ? y : x, *const last = pre ? x : y;  // the residual stream, and where its sum goes

  if (pre) add_norm(steps, at.norm2, middle, t);
  multiply(layer.fc1, pre ? t : middle, at.fc1.weight, h);
  auto act = activate(machine_.kernels, DType::f32, config_.activation, rows_, config_.d_ff);
  act.params.from = h;
  act.params.to = g;
  steps.add(act);
  multiply(layer.fc2, g, at.fc2.weight, q);
  steps.add(ops.add(middle, q, last, rows_ * d));
  if (!pre) add_norm(steps, at.norm2, last, middle);
}

void PlainPass::write_steps(StepList& steps, const Scratch& scratch, const Call& part, const BorderLayout& layout) {
  float *const x = floats(scratch, x_[0]), *const y = floats(scratch, x_[1]);
  add_load(steps, machine_, part, layout, x, {}, nullptr, nullptr, nullptr);
  for (std::size_t i = 0; i < layers_.size(); ++i) add_layer(steps, scratch, i, mask_bytes(part.mask), x, y);
  const float* answer = x;
  if (config_.final_norm) {
    add_norm(steps, machine_.weights.layout().final_norm, x, y);
    answer = y;
  }
  add_store(steps, machine_, part, layout, answer);
}

}  // namespace gnomon::cuda
