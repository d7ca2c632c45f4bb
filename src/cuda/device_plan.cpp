#include "cuda/device_plan.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace gnomon::cuda {

std::size_t SlicedPass::scratch_bytes() const {
  return std::max(whole_.scratch_bytes(), rest_ ? rest_->scratch_bytes() : 0);
}

Call SlicedPass::part(const Call& call, std::int64_t slice) const {
  const std::int64_t first = slice * slice_;
  return sequences_of(call, first, std::min(slice_, batch_ - first));
}

RangeGuard::RangeGuard(const Machine& machine) : machine_(machine), words_(4 * sizeof(std::uint32_t)) {
  check(driver().cuMemsetD8Async(words_.address(), 0, words_.bytes(), machine.ours), "cuMemsetD8Async");
  set({0, std::numeric_limits<float>::max()});
}

void RangeGuard::set(const InputRange& range) {
  const bool on = range != kAnyInput;
  if (on && !on_) lower(machine_.ours);  // nobody did while it was off
  on_ = on;
  const float values[] = {static_cast<float>(range.low), static_cast<float>(range.high)};
  check(driver().cuMemcpyHtoDAsync(words_.address(), values, sizeof values, machine_.ours), "cuMemcpyHtoDAsync");
  machine_.ours.synchronize();
}

void RangeGuard::lower(CUstream stream) const {
  check(driver().cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(flag()), 0, 1, stream), "cuMemsetD32Async");
}

std::uint32_t RangeGuard::read(const std::uint32_t* word, CUstream stream) const {
  std::uint32_t value = 0;
  check(driver().cuMemcpyDtoHAsync(&value, reinterpret_cast<CUdeviceptr>(word), sizeof value, stream),
        "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  return value;
}

bool RangeGuard::is_raised(CUstream stream) const { return read(flag(), stream) != 0; }
std::int64_t RangeGuard::fallbacks() const { return read(answered(), machine_.ours); }

DevicePlan::DevicePlan(Parts parts) : parts_(std::move(parts)) {
  const std::size_t bytes =
      std::max(parts_.pass->scratch_bytes(), parts_.fallback ? parts_.fallback->scratch_bytes() : 0);
  claim_ = std::make_unique<Arena::Claim>(parts_.machine->arena, bytes);
}

DevicePlan::~DevicePlan() {
  const auto machine = parts_.machine;  // outlives what is given back here
  const Device::Current current(machine->device);
  claim_.reset();
  parts_ = {};
}

void DevicePlan::require_device_memory(const Call& call) const {
  const Device& device = parts_.machine->device;
  device.require(call.input.data, "input");
  device.require(call.output.data, "output");
  if (call.mask) device.require(call.mask->data, "mask");
}

void DevicePlan::run_slice(std::int64_t slice, const Arena::Use& use, CUstream stream, const Call& call,
                           const BorderLayout& layout) {
  const Call part = parts_.pass->part(call, slice);
  WrittenPass& pass = parts_.pass->pass(slice);
  WrittenPass* const fallback = parts_.fallback ? &parts_.fallback->pass(slice) : nullptr;
  const Scratch& scratch = use.scratch();
  if (use.captured()) {
    // A graph cannot be launched into a capture, and nobody can look at the flag: the capture gets the exact pass,
    // where the pass does not answer by itself.
    parts_.machine->keep_for_captures(parts_.guard);
    parts_.machine->keep_for_captures(fallback ? parts_.fallback : parts_.pass);
    return (fallback ? *fallback : pass).launch_captured(stream, scratch, part, layout);
  }
  const CUstream ours = parts_.machine->captures;
  const bool guarded = fallback && (parts_.guard->on() || parts_.commits);
  if (guarded && driver().has_conditional_nodes() && !fallback->body_touches_border(scratch, part, layout))
    return pass.replay(stream, scratch, part, layout, fallback, ours, !parts_.graph);
  if (parts_.graph) {
    pass.replay(stream, scratch, part, layout, nullptr, ours, false);
  } else {
    pass.launch(stream, scratch, part, layout);
  }
  // No conditional nodes, or a body that touches the border: the host looks.
  if (!guarded || !parts_.guard->is_raised(stream)) return;
  parts_.guard->lower(stream);
  fallback->launch(stream, scratch, part, layout);
}

void DevicePlan::run(const Call& call) {
  const Device::Current current(parts_.machine->device);
  require_device_memory(call);
  const auto stream = static_cast<CUstream>(call.stream);
  const BorderLayout layout = BorderLayout::of(call);
  const Arena::Use use(parts_.machine->arena, *claim_, stream);
  for (std::int64_t slice = 0; slice < parts_.pass->slices(); ++slice) run_slice(slice, use, stream, call, layout);
}

void DevicePlan::poison_scratch() {
  const Device::Current current(parts_.machine->device);
  parts_.machine->arena.poison(parts_.machine->ours);
}

std::int64_t DevicePlan::range_fallbacks() const {
  if (!parts_.guard) return 0;
  const Device::Current current(parts_.machine->device);
  return parts_.guard->fallbacks();
}

void DevicePlan::set_verified_range(const InputRange& range) {
  if (!parts_.guard) return;
  const Device::Current current(parts_.machine->device);
  parts_.guard->set(range);
}

}  // namespace gnomon::cuda
