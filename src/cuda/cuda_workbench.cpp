#include "cuda/cuda_workbench.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "cuda/judge.hpp"
#include "cuda/norm.hpp"
#include "cuda/oracle.hpp"
#include "cuda/rows.hpp"
#include "plan/scratch_layout.hpp"

namespace gnomon::cuda {
namespace {

constexpr std::size_t kGuard = 4096;  // bytes on both sides of the scratch; a page keeps its alignment
// Every 16-bit half of this is a NaN of f16 and of bf16, and the whole word one of f32.
constexpr std::uint32_t kPoison = 0x7fed7fed;
constexpr std::size_t kJudgement = 256;  // scratch of judge.hpp

void poison(CUstream stream, const DeviceBuffer& buffer) {
  fill_pattern(stream, buffer.data(), static_cast<std::int64_t>(buffer.bytes() / sizeof kPoison), kPoison);
}

// Same dtype and shape, any strides.
void copy(KernelLibrary& kernels, CUstream stream, const TensorView& to, const ConstTensorView& from) {
  const auto& [batch, seq, width] = from.shape;
  const RowAccess read = row_access(from), write = row_access(to);
  auto launch =
      norm_rows(kernels, {.residual = from.dtype, .out = to.dtype}, batch * seq, width, std::min(read.vec, write.vec));
  launch.params.residual = from.data;
  launch.params.residual_strides = read.strides;
  launch.params.to = to.data;
  launch.params.to_strides = write.strides;
  launch.run(stream);
}

}  // namespace

CudaWorkbench::CudaWorkbench(std::shared_ptr<Machine> machine, const Problem& problem, const Call& call)
    : machine_(std::move(machine)), problem_(problem), input_(call.input), call_(call) {
  const Device::Current current(machine_->device);
  machine_->device.require(call.input.data, "input");
  if (call.mask) machine_->device.require(call.mask->data, "mask");
  reference_ = DeviceBuffer(static_cast<std::size_t>(call.input.elements()) * sizeof(float));
  judgement_ = DeviceBuffer(kJudgement);
  lay_out_scratch();
  range_ = measure_range(call);
  Call asked = call;
  asked.output = TensorView::contiguous(reference_.data(), DType::f32, call.input.shape);
  oracle(*machine_, asked);
  expected_ = ConstTensorView::contiguous(reference_.data(), DType::f32, call.input.shape);
}

CudaWorkbench::~CudaWorkbench() {
  const Device::Current current(machine_->device);
  for (DeviceBuffer* buffer : {&reference_, &scratch_, &judgement_, &evictor_}) *buffer = DeviceBuffer();
}

void CudaWorkbench::synchronize() const { cuda::check(driver().cuStreamSynchronize(stream()), "cuStreamSynchronize"); }

void CudaWorkbench::lay_out_scratch() {
  auto [scratch, bytes, first] = scratch_layout(call_.output);
  scratch_bytes_ = bytes;
  scratch_ = DeviceBuffer((scratch_bytes_ + 3) / 4 * 4 + 2 * kGuard);
  first_element_ = static_cast<std::ptrdiff_t>(kGuard) + first;
  scratch.data = scratch_.data() + first_element_;
  call_.output = scratch;
  if (problem_.inplace) {
    call_.input.data = scratch.data;
    call_.input.strides = scratch.strides;
  }
}

InputRange CudaWorkbench::measure_range(const Call& call) {
  const auto& [batch, seq, width] = call.input.shape;
  const DeviceBuffer sizes(static_cast<std::size_t>(batch * seq) * sizeof(float));
  const RowAccess access = row_access(call.input);
  auto launch = load_rows(machine_->kernels, call.input.dtype, {}, batch * seq, width, access.vec);
  launch.params.from = call.input.data;
  launch.params.strides = access.strides;
  launch.params.mask = mask_bytes(call.mask);
  launch.params.row_sizes = sizes.as<float>();
  launch.run(stream());
  std::vector<float> on_host(static_cast<std::size_t>(batch * seq));
  cuda::check(driver().cuMemcpyDtoHAsync(on_host.data(), sizes.address(), sizes.bytes(), stream()),
              "cuMemcpyDtoHAsync");
  synchronize();
  return trusted_range(problem_.config.norm, std::move(on_host));
}

void CudaWorkbench::restore_input() {
  if (problem_.inplace) copy(machine_->kernels, stream(), call_.output, input_);
}

Verdict CudaWorkbench::check(Plan& plan) {
  const Device::Current current(machine_->device);
  poison(stream(), scratch_);
  restore_input();
  plan.poison_scratch();
  plan.run(call_);
  const TensorView& out = call_.output;
  Verdict verdict = compare(machine_->kernels, stream(), {out.data, out.dtype, out.shape, out.strides}, expected_,
                            problem_.contract, judgement_.data());
  if (!intact()) verdict.fault = "wrote outside the output";
  return verdict;
}

bool CudaWorkbench::intact() {
  const auto changed = [&](std::size_t from) {
    return changed_words(machine_->kernels, stream(), scratch_.data() + from, kGuard / sizeof kPoison, kPoison,
                         judgement_.data());
  };
  if (changed(0) != 0 || changed(scratch_.bytes() - kGuard) != 0) return false;
  const bool gaps = scratch_bytes_ != static_cast<std::size_t>(call_.output.elements()) * size_of(call_.output.dtype);
  return !gaps || gaps_intact();
}

// Looked at on the host: strided outputs are rare, and a planning looks a few times.
bool CudaWorkbench::gaps_intact() {
  std::vector<std::uint16_t> halves(scratch_.bytes() / 2);
  cuda::check(driver().cuMemcpyDtoHAsync(halves.data(), scratch_.address(), scratch_.bytes(), stream()),
              "cuMemcpyDtoHAsync");
  synchronize();
  const TensorView& out = call_.output;
  const auto size = static_cast<std::int64_t>(size_of(out.dtype));
  constexpr auto poison_half = static_cast<std::uint16_t>(kPoison);
  for (std::int64_t b = 0; b < out.shape[0]; ++b) {
    for (std::int64_t s = 0; s < out.shape[1]; ++s) {
      for (std::int64_t i = 0; i < out.shape[2]; ++i) {
        const std::int64_t at = first_element_ + (b * out.strides[0] + s * out.strides[1] + i * out.strides[2]) * size;
        std::fill_n(halves.begin() + at / 2, size / 2, poison_half);
      }
    }
  }
  return std::ranges::all_of(halves, [](std::uint16_t half) { return half == poison_half; });
}

void CudaWorkbench::before_timed_run() {
  const Device::Current current(machine_->device);
  restore_input();
  synchronize();
}

// Writing three times what the second-level cache holds leaves nothing else in it.
void CudaWorkbench::evict_caches() {
  const Device::Current current(machine_->device);
  if (!evictor_.data()) evictor_ = DeviceBuffer(3 * static_cast<std::size_t>(machine_->device.properties().l2_bytes));
  cuda::check(driver().cuMemsetD8Async(evictor_.address(), 0, evictor_.bytes(), stream()), "cuMemsetD8Async");
  synchronize();
}

void CudaWorkbench::run_repeatedly(Plan& plan, int times) {
  const Device::Current current(machine_->device);
  for (int i = 0; i < times; ++i) plan.run(call_);
  synchronize();
}

namespace {

struct KeptTensors {
  std::shared_ptr<Machine> machine;
  DeviceBuffer input, output, mask;
  ~KeptTensors() {
    const Device::Current current(machine->device);
    for (DeviceBuffer* buffer : {&input, &output, &mask}) *buffer = DeviceBuffer();
  }
};

}  // namespace

KeptCall keep_call(const std::shared_ptr<Machine>& machine, const Problem& problem, const Call& call) {
  const auto kept = std::make_shared<KeptTensors>();
  kept->machine = machine;
  const auto stream = static_cast<CUstream>(call.stream);
  Call copied = call;
  copied.stream = machine->ours;
  const auto bytes = static_cast<std::size_t>(call.input.elements()) * size_of(call.input.dtype);
  kept->input = DeviceBuffer(bytes);
  const TensorView input = TensorView::contiguous(kept->input.data(), call.input.dtype, call.input.shape);
  copy(machine->kernels, stream, input, call.input);
  copied.input = {input.data, input.dtype, input.shape, input.strides};
  if (problem.inplace) {
    copied.output = input;
  } else {
    kept->output = DeviceBuffer(bytes);
    copied.output = TensorView::contiguous(kept->output.data(), call.output.dtype, call.output.shape);
  }
  if (call.mask) {
    const auto& [batch, seq] = call.mask->shape;
    kept->mask = DeviceBuffer(static_cast<std::size_t>(batch * seq));
    copied.mask = MaskView{kept->mask.as<std::uint8_t>(), call.mask->shape, {seq, 1}};
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = reinterpret_cast<CUdeviceptr>(call.mask->data);
    rows.dstDevice = kept->mask.address();
    rows.dstPitch = static_cast<std::size_t>(seq);
    rows.srcPitch = static_cast<std::size_t>(call.mask->strides[0]);
    rows.WidthInBytes = static_cast<std::size_t>(seq);
    rows.Height = static_cast<std::size_t>(batch);
    if (call.mask->strides[1] != 1 || call.mask->strides[0] < seq)
      throw_environment("planning in the background copies dense masks only, the strides are {} and {}",
                        call.mask->strides[0], call.mask->strides[1]);
    cuda::check(driver().cuMemcpy2DAsync(&rows, stream), "cuMemcpy2DAsync");
  }
  cuda::check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  return {copied, kept};
}

}  // namespace gnomon::cuda
