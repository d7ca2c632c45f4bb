#include "cuda/border_steps.hpp"

#include <algorithm>

#include "cuda/guard.hpp"

namespace gnomon::cuda {
namespace {

const void* input_of(const Border& border) { return border.input; }
const void* output_of(const Border& border) { return border.output; }
const void* mask_of(const Border& border) { return border.mask; }

}  // namespace

void add_load(StepList& steps, Machine& machine, const Call& part, const BorderLayout& layout, float* wide,
              std::optional<DType> narrow_type, void* narrow, const float* range, std::uint32_t* flag) {
  const auto& [batch, seq, width] = part.input.shape;
  auto load = load_rows(machine.kernels, part.input.dtype, narrow_type, batch * seq, width, layout.input_vec);
  load.params.strides = row_access(part.input).strides;
  load.params.wide = wide;
  load.params.narrow = narrow;
  load.params.range = range;
  load.params.flags = flag;
  load.params.mask = mask_bytes(part.mask);
  steps.add(load);
  steps.follow(offsetof(kernels::LoadRows, from), input_of);
  if (range && part.mask) steps.follow(offsetof(kernels::LoadRows, mask) + offsetof(kernels::MaskBytes, data), mask_of);
}

void add_decision(StepList& steps, Machine& machine, const PassGuard& guard, kernels::CallTensors* told) {
  auto launch = decide(machine.kernels);
  launch.params.told = told;
  launch.params.flags = guard.flag;
  launch.params.answered = guard.answered;
  steps.add(launch);
  constexpr std::size_t call = offsetof(kernels::Decide, call);
  steps.follow(call + offsetof(kernels::CallTensors, input), input_of);
  steps.follow(call + offsetof(kernels::CallTensors, mask), mask_of);
  steps.follow(call + offsetof(kernels::CallTensors, output), output_of);
  steps.decides_at(offsetof(kernels::Decide, condition));
}

void add_to_output(StepList& steps, Launch<kernels::NormRows> norm, const Call& part, std::uint32_t* flag) {
  norm.params.flags = flag;
  norm.params.to_strides = row_access(part.output).strides;
  steps.add(norm);
  steps.follow(offsetof(kernels::NormRows, to), output_of);
}

void add_store(StepList& steps, Machine& machine, const Call& part, const BorderLayout& layout, const float* rows) {
  const auto& [batch, seq, width] = part.output.shape;
  auto store = norm_rows(machine.kernels, {.out = part.output.dtype}, batch * seq, width,
                         std::min(widest_vec(width), layout.output_vec));
  store.params.residual = rows;
  add_to_output(steps, store, part, nullptr);
}

}  // namespace gnomon::cuda
