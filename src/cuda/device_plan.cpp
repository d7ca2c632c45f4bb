#include "cuda/device_plan.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace gnomon::cuda {

std::size_t SlicedPass::scratch_bytes() const {
  return std::max(whole_.scratch_bytes(), rest_ ? rest_->scratch_bytes() : 0);
}

void SlicedPass::run(std::int64_t slice, CUstream stream, std::byte* scratch, const Call& call,
                     const BorderLayout& layout, std::uint32_t* flags, std::optional<CUstream> graph) {
  const std::int64_t first = slice * slice_, count = std::min(slice_, batch_ - first);
  WrittenPass& pass = count == slice_ ? whole_ : *rest_;
  pass.run(stream, scratch, sequences_of(call, first, count), layout, flags, graph);
}

RangeGuard::RangeGuard(Machine& machine, std::int64_t slices)
    : machine_(machine),
      slices_(slices),
      range_(2 * sizeof(float)),
      flags_(static_cast<std::size_t>(slices) * sizeof(std::uint32_t)),
      host_flags_(static_cast<std::size_t>(slices) * sizeof(std::uint32_t)) {
  set({0, std::numeric_limits<double>::max()});
}

void RangeGuard::set(const InputRange& range) {
  on_ = range != kAnyInput;
  const float values[] = {static_cast<float>(range.low), static_cast<float>(range.high)};
  check(driver().cuMemcpyHtoDAsync(range_.address(), values, sizeof values, machine_.ours), "cuMemcpyHtoDAsync");
  machine_.ours.synchronize();
}

void RangeGuard::clear(CUstream stream) const {
  check(driver().cuMemsetD32Async(flags_.address(), 0, static_cast<std::size_t>(slices_), stream), "cuMemsetD32Async");
}

const std::uint32_t* RangeGuard::read(CUstream stream) const {
  check(driver().cuMemcpyDtoHAsync(host_flags_.as<void>(), flags_.address(), flags_.bytes(), stream),
        "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  return host_flags_.as<std::uint32_t>();
}

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

void DevicePlan::run_all(SlicedPass& pass, CUstream stream, std::byte* scratch, const Call& call,
                         const BorderLayout& layout, bool graph) {
  const auto capture_on = graph ? std::optional<CUstream>(parts_.machine->ours) : std::nullopt;
  for (std::int64_t slice = 0; slice < pass.slices(); ++slice) {
    std::uint32_t* const flags = parts_.guard ? parts_.guard->flags() + slice : nullptr;
    pass.run(slice, stream, scratch, call, layout, flags, capture_on);
  }
}

void DevicePlan::run(const Call& call) {
  const Device::Current current(parts_.machine->device);
  require_device_memory(call);
  const auto stream = static_cast<CUstream>(call.stream);
  const BorderLayout layout = BorderLayout::of(call);
  const Arena::Use use(parts_.machine->arena, *claim_, stream);
  if (use.captured()) {
    // Nobody can look at flags while a stream is captured: the graph gets the passes that need no guard.
    const RelaxedCapture relaxed;
    return run_all(parts_.fallback ? *parts_.fallback : *parts_.pass, stream, use.data(), call, layout, false);
  }
  RangeGuard* const guard = parts_.guard.get();
  const bool look = guard && (guard->on() || parts_.commits);
  if (look) guard->clear(stream);
  run_all(*parts_.pass, stream, use.data(), call, layout, parts_.graph);
  if (!look) return;
  const std::uint32_t* const flags = guard->read(stream);
  for (std::int64_t slice = 0; slice < parts_.pass->slices(); ++slice) {
    if (flags[slice] == 0) continue;
    ++guard->fallbacks;
    parts_.fallback->run(slice, stream, use.data(), call, layout, nullptr, {});
  }
}

void DevicePlan::poison_scratch() {
  const Device::Current current(parts_.machine->device);
  parts_.machine->arena.poison(parts_.machine->ours);
}

void DevicePlan::set_verified_range(const InputRange& range) {
  if (!parts_.guard) return;
  const Device::Current current(parts_.machine->device);
  parts_.guard->set(range);
}

}  // namespace gnomon::cuda
