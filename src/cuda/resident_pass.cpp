#include "cuda/resident_pass.hpp"

#include <algorithm>

#include "cuda/border_steps.hpp"
#include "cuda/exact.hpp"
#include "cuda/guard.hpp"
#include "cuda/norm.hpp"

namespace gnomon::cuda {
namespace {

const void* input_of(const Border& border) { return border.input; }
const void* output_of(const Border& border) { return border.output; }
const void* mask_of(const Border& border) { return border.mask; }

// Four adjacent floats at a time, at 16 bytes' alignment.
bool direct(DType border, const std::array<std::int64_t, 3>& strides, int vec) {
  return border == DType::f32 && strides[2] == 1 && vec >= 4;
}

}  // namespace

ResidentSpec resident_spec(const Problem& problem, std::int64_t sequences) {
  return {.config = problem.config, .batch = sequences, .seq = problem.seq, .masked = problem.mask};
}

std::optional<ResidentForm> form_of(const Choices& choices, const ResidentSpec& spec, const DeviceProperties& device) {
  if (choices.tile != "first") return ResidentForm::parse(choices.tile);
  const auto forms = resident_forms(spec, device);
  return forms.empty() ? std::nullopt : std::optional(forms.front());
}

bool resident_answers(const Problem& problem, std::int64_t sequences, const DeviceProperties& device) {
  return answers_in_one_launch(resident_spec(problem, sequences), device);
}

// What other layouts, a commit and the fp32 answer need; contiguous fp32 tensors need nothing else.
std::size_t resident_scratch_bytes(const Problem& problem, std::int64_t sequences, const DeviceProperties& device) {
  const auto elements = static_cast<std::size_t>(sequences * problem.seq * problem.config.d_model);
  const std::size_t border = elements * (2 * sizeof(float) + (problem.inplace ? size_of(problem.dtype) : 0)) + 1024;
  if (!resident_answers(problem, sequences, device)) return border;
  return border + exact_scratch_bytes(resident_spec(problem, sequences), device);
}

ResidentPass::ResidentPass(Machine& machine, const ResidentSpec& spec, const ResidentForm& form, DType border,
                           const PassGuard& guard)
    : machine_(machine),
      spec_(spec),
      form_(form),
      border_(border),
      guard_(guard),
      weights_(machine.resident_weights()),
      wide_(guard.answers ? machine.weights.copy(DType::f32, machine.kernels, machine.ours) : nullptr) {
  const std::int64_t elements = spec.batch * spec.seq * spec.config.d_model;
  input_ = places_.take(elements, sizeof(float));
  output_ = places_.take(elements, sizeof(float));
  if (guard.commit) result_ = places_.take(elements, size_of(border));
  if (guard.answers)
    exact_ = places_.take(static_cast<std::int64_t>(exact_scratch_bytes(spec, machine.device.properties())), 1);
}

// A flag of the scratch's, not of the plan's: a capture's replays and other calls do not see one another's.
std::uint32_t* ResidentPass::flag(const Scratch& scratch) const {
  return guard_.answers ? scratch.zeros + kExactWords : guard_.flag;
}

void ResidentPass::add_answer(StepList& steps, const Scratch& scratch, const Call& part) const {
  auto launch = exact_stack(machine_.kernels, spec_, border_, machine_.weights.layout(), *wide_);
  launch.params.input_strides = row_access(part.input).strides;
  launch.params.output_strides = row_access(part.output).strides;
  launch.params.mask = mask_bytes(part.mask);
  launch.params.scratch = floats(scratch, exact_);
  launch.params.flags = flag(scratch);
  launch.params.ended = flag(scratch) + 1;
  launch.params.answered = guard_.answered;
  steps.add(launch);
  using kernels::ExactStack;
  steps.follow(offsetof(ExactStack, input), input_of);
  steps.follow(offsetof(ExactStack, output), output_of);
  if (part.mask) steps.follow(offsetof(ExactStack, mask) + offsetof(kernels::MaskBytes, data), mask_of);
}

void ResidentPass::write_steps(StepList& steps, const Scratch& scratch, const Call& part, const BorderLayout& layout) {
  add_stack(steps, scratch, part, layout);
  if (guard_.answers) add_answer(steps, scratch, part);
}

void ResidentPass::add_stack(StepList& steps, const Scratch& scratch, const Call& part, const BorderLayout& layout) {
  const std::int64_t rows = spec_.batch * spec_.seq, d = spec_.config.d_model;
  const bool reads = direct(border_, layout.input, layout.input_vec);
  const bool writes = !guard_.commit && direct(border_, layout.output, layout.output_vec);
  if (!reads) add_load(steps, machine_, part, layout, floats(scratch, input_), {}, nullptr, nullptr, nullptr);

  auto launch = resident(machine_.kernels, spec_, form_, *weights_);
  launch.params.range = guard_.range;
  launch.params.flags = flag(scratch);
  launch.params.mask = mask_bytes(part.mask);
  launch.params.input = floats(scratch, input_);
  launch.params.output = floats(scratch, output_);
  if (reads) {
    launch.params.input_sequence = part.input.strides[0];
    launch.params.input_token = part.input.strides[1];
  }
  if (writes) {
    launch.params.output_sequence = part.output.strides[0];
    launch.params.output_token = part.output.strides[1];
  }
  steps.add(launch);
  using kernels::resident::Call;
  if (reads) steps.follow(offsetof(Call, input), input_of);
  if (writes) steps.follow(offsetof(Call, output), output_of);
  if (part.mask) steps.follow(offsetof(Call, mask) + offsetof(kernels::MaskBytes, data), mask_of);
  if (writes) return;

  if (!guard_.commit) return add_store(steps, machine_, part, layout, floats(scratch, output_));
  auto store = norm_rows(machine_.kernels, {.out = border_}, rows, d, widest_vec(d));
  store.params.residual = floats(scratch, output_);
  store.params.to = scratch + result_;
  steps.add(store);
  auto commit = commit_rows(machine_.kernels, border_, rows, d, layout.output_vec);
  commit.params.from = scratch + result_;
  commit.params.to_strides = row_access(part.output).strides;
  commit.params.flags = flag(scratch);
  steps.add(commit);
  steps.follow(offsetof(kernels::CommitRows, to), output_of);
}

}  // namespace gnomon::cuda
