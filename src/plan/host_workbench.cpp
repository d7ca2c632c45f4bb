#include "plan/host_workbench.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "core/error.hpp"
#include "core/half.hpp"
#include "core/memory.hpp"
#include "plan/scratch_layout.hpp"

namespace gnomon {
namespace {

constexpr double kKeptShare = 0.25;   // of the available memory: what a copy for the background may take
constexpr std::size_t kGuard = 4096;  // bytes on both sides of the scratch; a page keeps its alignment
// Every 16-bit half of this is a NaN of f16 and of bf16, every 32-bit word a NaN of f32: one pattern poisons all types
// and, where nobody may write, tells who did.
constexpr std::uint16_t kPoison = 0x7fed;

void fill(std::byte* begin, std::size_t bytes) {
  std::uint16_t* const halves = reinterpret_cast<std::uint16_t*>(begin);
  std::fill(halves, halves + bytes / 2, kPoison);
}

bool filled(const std::byte* begin, std::size_t bytes) {
  const std::uint16_t* const halves = reinterpret_cast<const std::uint16_t*>(begin);
  return std::all_of(halves, halves + bytes / 2, [](std::uint16_t half) { return half == kPoison; });
}

// Calls row(address of element (b, s, 0)) for every row.
template <typename Void, typename Row>
void for_each_row(const BasicTensorView<Void>& view, Row row) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  for (std::int64_t b = 0; b < view.shape[0]; ++b) {
    for (std::int64_t s = 0; s < view.shape[1]; ++s) {
      row(static_cast<Byte*>(view.data) + (b * view.strides[0] + s * view.strides[1]) * size, b, s);
    }
  }
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float element(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return load<float>(at);
    case DType::f16:
      return f16_to_float(load<std::uint16_t>(at));
    case DType::bf16:
      return bf16_to_float(load<std::uint16_t>(at));
    case DType::f64:
      break;
  }
  throw_internal("no bench for tensors of {}", name_of(dtype));
}

// Of the valid rows: what padding happens to hold must not widen the range that a plan is trusted on.
double largest_finite(const Call& call) {
  double largest = 0;
  const ConstTensorView& view = call.input;
  const std::int64_t step = view.strides[2] * static_cast<std::int64_t>(size_of(view.dtype));
  for_each_row(view, [&](const std::byte* row, std::int64_t b, std::int64_t s) {
    if (call.mask && !call.mask->valid(b, s)) return;
    for (std::int64_t i = 0; i < view.shape[2]; ++i) {
      const double value = std::abs(element(row + i * step, view.dtype));
      if (std::isfinite(value)) largest = std::max(largest, value);
    }
  });
  return largest;
}

// Same dtype and shape, any strides.
void copy(const TensorView& to, const ConstTensorView& from) {
  const auto size = static_cast<std::int64_t>(size_of(from.dtype));
  for_each_row(from, [&](const std::byte* source, std::int64_t b, std::int64_t s) {
    std::byte* target = static_cast<std::byte*>(to.data) + (b * to.strides[0] + s * to.strides[1]) * size;
    if (from.strides[2] == 1 && to.strides[2] == 1) {
      std::memcpy(target, source, static_cast<std::size_t>(from.shape[2] * size));
      return;
    }
    for (std::int64_t i = 0; i < from.shape[2]; ++i) {
      std::memcpy(target + i * to.strides[2] * size, source + i * from.strides[2] * size,
                  static_cast<std::size_t>(size));
    }
  });
}

// Linux grants memory that it does not have, and kills whoever touches it.
void require_memory(double bytes) {
  const AvailableMemory available = available_memory();
  if (bytes > static_cast<double>(available.bytes)) {
    throw_environment("the reference answer and the scratch output need {}, {} are available ({})", format_bytes(bytes),
                      format_bytes(static_cast<double>(available.bytes)), available.source);
  }
}

}  // namespace

void HostWorkbench::Free::operator()(std::byte* memory) const { std::free(memory); }

HostWorkbench::Memory HostWorkbench::allocate(std::size_t bytes) {
  void* const memory = std::aligned_alloc(kGuard, (bytes + kGuard - 1) / kGuard * kGuard);
  if (!memory) throw std::bad_alloc();
  return Memory(static_cast<std::byte*>(memory));
}

HostWorkbench::HostWorkbench(const Problem& problem, const Call& call,
                             const std::function<void(const Call&)>& reference)
    : problem_(problem), input_(call.input), call_(call) {
  require_memory(static_cast<double>(call.input.elements()) *
                 static_cast<double>(sizeof(float) + size_of(call.output.dtype)));
  reference_ = allocate(static_cast<std::size_t>(call.input.elements()) * sizeof(float));
  lay_out_scratch(call);
  Call asked = call;
  asked.output = TensorView::contiguous(reference_.get(), DType::f32, call.input.shape);
  reference(asked);
  expected_ = ConstTensorView::contiguous(reference_.get(), DType::f32, call.input.shape);
  input_max_ = largest_finite(call);
}

void HostWorkbench::lay_out_scratch(const Call& call) {
  auto [scratch, bytes, first] = scratch_layout(call.output);
  scratch_bytes_ = bytes;
  scratch_ = allocate(scratch_bytes_ + 2 * kGuard);
  scratch.data = scratch_.get() + kGuard + first;
  call_.output = scratch;
  if (problem_.inplace) {
    call_.input.data = scratch.data;
    call_.input.strides = scratch.strides;
  }
  fill(scratch_.get(), scratch_bytes_ + 2 * kGuard);
}

Verdict HostWorkbench::check(Plan& plan) {
  fill(scratch_.get(), scratch_bytes_ + 2 * kGuard);
  if (problem_.inplace) copy(call_.output, input_);
  plan.poison_scratch();
  plan.run(call_);
  const TensorView& out = call_.output;
  Verdict verdict = compare({out.data, out.dtype, out.shape, out.strides}, expected_, problem_.contract);
  const bool gaps = scratch_bytes_ != static_cast<std::size_t>(out.elements()) * size_of(out.dtype);
  if (gaps) poison_elements();
  const bool intact = filled(scratch_.get(), kGuard) && filled(scratch_.get() + kGuard + scratch_bytes_, kGuard) &&
                      (!gaps || filled(scratch_.get() + kGuard, scratch_bytes_));
  if (!intact) verdict.fault = "wrote outside the output";
  return verdict;
}

// Afterwards whatever is not poison in a scratch with gaps was written where no element is.
void HostWorkbench::poison_elements() {
  const std::int64_t step = call_.output.strides[2] * static_cast<std::int64_t>(size_of(call_.output.dtype));
  for_each_row(call_.output, [&](std::byte* row, std::int64_t, std::int64_t) {
    for (std::int64_t i = 0; i < call_.output.shape[2]; ++i) fill(row + i * step, size_of(call_.output.dtype));
  });
}

void HostWorkbench::before_timed_run() {
  if (problem_.inplace) copy(call_.output, input_);
}

void HostWorkbench::run(Plan& plan) { plan.run(call_); }

KeptCall Backend::keep(const Problem& problem, const Call& call) {
  const auto tensor = static_cast<std::size_t>(problem.elements()) * size_of(problem.dtype);
  const std::size_t mask = call.mask ? static_cast<std::size_t>(problem.tokens()) : 0;
  const AvailableMemory available = available_memory();
  if (static_cast<double>(tensor + mask) > kKeptShare * static_cast<double>(available.bytes)) {
    throw_environment("a copy of its input needs {}, more than {:.0f} % of the {} that are available ({})",
                      format_bytes(static_cast<double>(tensor + mask)), 100 * kKeptShare,
                      format_bytes(static_cast<double>(available.bytes)), available.source);
  }
  const auto memory = std::make_shared<std::vector<std::max_align_t>>((tensor + mask) / sizeof(std::max_align_t) + 1);
  auto* const bytes = reinterpret_cast<std::byte*>(memory->data());
  KeptCall kept{call, memory};
  kept.call.stream = nullptr;
  const TensorView input = TensorView::contiguous(bytes, call.input.dtype, call.input.shape);
  copy(input, call.input);
  kept.call.input = ConstTensorView::contiguous(bytes, input.dtype, input.shape);
  kept.call.output.data = nullptr;
  if (problem.inplace) kept.call.output = input;
  if (call.mask) {
    auto* const valid = reinterpret_cast<std::uint8_t*>(bytes + tensor);
    const std::int64_t seq = call.mask->shape[1];
    for (std::int64_t i = 0; i < call.mask->shape[0] * seq; ++i)
      valid[i] = call.mask->data[i / seq * call.mask->strides[0] + i % seq * call.mask->strides[1]];
    kept.call.mask = MaskView{valid, call.mask->shape, {seq, 1}};
  }
  return kept;
}

}  // namespace gnomon
