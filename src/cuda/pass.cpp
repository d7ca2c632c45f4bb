#include "cuda/pass.hpp"

#include <algorithm>

#include "cuda/rows.hpp"

namespace gnomon::cuda {
namespace {

constexpr std::size_t kMostWritten = 4;  // graphs hold device memory; a model's calls have one layout, rarely two

Border border_of(const Call& part) {
  return {part.input.data, part.mask ? part.mask->data : nullptr, part.output.data};
}

}  // namespace

BorderLayout BorderLayout::of(const Call& call) {
  BorderLayout layout;
  layout.input = call.input.strides;
  layout.output = call.output.strides;
  if (call.mask) layout.mask = call.mask->strides;
  layout.input_vec = row_access(call.input).vec;
  layout.output_vec = row_access(call.output).vec;
  return layout;
}

StepList& WrittenPass::steps_for(const Scratch& scratch, const Call& part, const BorderLayout& layout) {
  std::erase_if(written_, [&](const Written& w) { return w.scratch != scratch; });  // the arena moved
  const auto found = std::ranges::find(written_, layout, &Written::layout);
  if (found != written_.end()) {
    std::rotate(found, found + 1, written_.end());
  } else {
    if (written_.size() >= kMostWritten) written_.erase(written_.begin());
    auto steps = std::make_unique<StepList>();
    pass_->write_steps(*steps, scratch, part, layout);
    written_.push_back({scratch, layout, std::move(steps)});
  }
  return *written_.back().steps;
}

void WrittenPass::launch(CUstream stream, const Scratch& scratch, const Call& part, const BorderLayout& layout) {
  steps_for(scratch, part, layout).run(stream, border_of(part));
}

void WrittenPass::launch_captured(CUstream stream, const Scratch& scratch, const Call& part,
                                  const BorderLayout& layout) {
  StepList steps;
  pass_->write_steps(steps, scratch, part, layout);
  steps.run(stream, border_of(part));
}

void WrittenPass::replay(CUstream stream, const Scratch& scratch, const Call& part, const BorderLayout& layout,
                         WrittenPass* fallback, CUstream ours, bool launched) {
  StepList& steps = steps_for(scratch, part, layout);
  if (!steps.captured(fallback != nullptr))
    steps.capture(ours, fallback ? &fallback->steps_for(scratch, part, layout) : nullptr, !launched);
  if (launched) steps.run(stream, border_of(part));
  steps.replay(stream, border_of(part));
}

}  // namespace gnomon::cuda
