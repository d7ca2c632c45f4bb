#include "cuda/exact.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "cuda/activation.hpp"
#include "cuda/instantiate.hpp"

namespace gnomon::cuda {
namespace {

constexpr int kThreads = 256;                          // exact.cuh: kExactThreads
constexpr std::int64_t kMostMultiplyAdds = 300 << 20;  // that follow one another on a multiprocessor: some 3 ms
constexpr int kMostScores = 32 << 10;                  // bytes, beside the static tile's 8 KB

std::int64_t blocks(const ResidentSpec& spec, const DeviceProperties& device) {
  return std::min<std::int64_t>(spec.batch, device.multiprocessors);
}

std::int64_t floats_of_block(const ResidentSpec& spec) {
  const StackConfig& c = spec.config;
  return spec.seq * (2 * c.d_model + std::max(3 * c.d_model, c.d_ff));
}

int score_bytes(const ResidentSpec& spec) {
  return static_cast<int>(kThreads / 32 * spec.seq * static_cast<std::int64_t>(sizeof(float)));
}

kernels::i32 offset(std::int64_t at) { return static_cast<kernels::i32>(at); }

}  // namespace

bool answers_in_one_launch(const ResidentSpec& spec, const DeviceProperties& device) {
  const StackConfig& c = spec.config;
  if (spec.seq > kMostScores / (kThreads / 32 * static_cast<std::int64_t>(sizeof(float)))) return false;
  const double of_layer =
      static_cast<double>(spec.seq * c.d_model) * static_cast<double>(4 * c.d_model + 2 * c.d_ff + 2 * spec.seq);
  const std::int64_t rounds = (spec.batch + device.multiprocessors - 1) / device.multiprocessors;
  return of_layer * static_cast<double>(c.layers * rounds) <= static_cast<double>(kMostMultiplyAdds);
}

std::size_t exact_scratch_bytes(const ResidentSpec& spec, const DeviceProperties& device) {
  return static_cast<std::size_t>(blocks(spec, device) * floats_of_block(spec)) * sizeof(float);
}

Launch<kernels::ExactStack> exact_stack(KernelLibrary& library, const ResidentSpec& spec, DType border,
                                        const WeightsLayout& layout, const WeightsCopy& fp32) {
  const StackConfig& c = spec.config;
  const LayerAt& first = layout.layers.front();
  const std::int64_t apart = layout.layers.size() > 1 ? layout.layers[1].qkv.weight - first.qkv.weight : 0;
  for (std::size_t i = 0; i < layout.layers.size(); ++i) {
    if (layout.layers[i].norm2.weight - first.norm2.weight != static_cast<std::int64_t>(i) * apart)
      throw_internal("layer {} lies {} elements from the first, expected {} times {}", i,
                     layout.layers[i].norm2.weight - first.norm2.weight, i, apart);
  }
  Launch<kernels::ExactStack> launch;
  launch.kernel = &library.get(instantiate("exact.cuh", "exact_stack", border, function_name(c.activation)));
  launch.shape = {.blocks = blocks(spec, library.device().properties()),
                  .threads = kThreads,
                  .dynamic_shared_bytes = score_bytes(spec)};
  kernels::ExactStack& p = launch.params;
  p.weights = fp32.floats(0);
  p.layer_stride = apart;
  p.qkv = offset(first.qkv.weight), p.bias_qkv = offset(first.qkv.bias);
  p.out = offset(first.out.weight), p.bias_out = offset(first.out.bias);
  p.fc1 = offset(first.fc1.weight), p.bias_fc1 = offset(first.fc1.bias);
  p.fc2 = offset(first.fc2.weight), p.bias_fc2 = offset(first.fc2.bias);
  p.norm1 = offset(first.norm1.weight), p.shift1 = offset(first.norm1.bias);
  p.norm2 = offset(first.norm2.weight), p.shift2 = offset(first.norm2.bias);
  p.final_gain = fp32.floats(layout.final_norm.weight);
  p.final_shift = fp32.floats(layout.final_norm.bias);
  p.batch = spec.batch;
  p.layers = static_cast<kernels::i32>(c.layers);
  p.seq = static_cast<kernels::i32>(spec.seq);
  p.width = static_cast<kernels::i32>(c.d_model);
  p.heads = static_cast<kernels::i32>(c.n_heads);
  p.hidden = static_cast<kernels::i32>(c.d_ff);
  p.causal = c.causal;
  p.pre_norm = c.norm == NormPlacement::pre;
  p.eps = static_cast<float>(c.eps);
  p.scratch_block = floats_of_block(spec);
  return launch;
}

}  // namespace gnomon::cuda
