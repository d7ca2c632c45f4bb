#include "cuda/kernel.hpp"

#include <limits>
#include <vector>

#include "core/error.hpp"

namespace gnomon::cuda {

Kernel::Kernel(KernelSource source, const Architecture& architecture, std::shared_ptr<Compiler> compiler)
    : source_(std::move(source)),
      name_(source_.to_string()),
      architecture_(architecture),
      compiler_(std::move(compiler)) {}

Kernel::~Kernel() {
  if (module_) driver().cuModuleUnload(module_);
}

void Kernel::load() const {
  if (loaded_.load(std::memory_order_acquire)) return;
  const auto compiled = compiler_->get(source_, architecture_);
  const std::lock_guard lock(mutex_);
  if (loaded_) return;
  if (!module_) {
    std::string log(4096, '\0');
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
    const CUresult result = driver().cuModuleLoadDataEx(&module_, compiled->image.data(), 2, options, values);
    if (result != CUDA_SUCCESS && log[0] != '\0')
      throw_environment("the driver does not load {}: {}", name_, log.c_str());
    check(result, "cuModuleLoadDataEx");
  }
  check(driver().cuModuleGetFunction(&function_, module_, compiled->symbol.c_str()), "cuModuleGetFunction");
  allow(dynamic_shared_);
  parameter_sizes_.clear();
  if (driver().cuFuncGetParamInfo) {  // an older driver does not tell
    std::size_t offset = 0, size = 0;
    while (driver().cuFuncGetParamInfo(function_, parameter_sizes_.size(), &offset, &size) == CUDA_SUCCESS)
      parameter_sizes_.push_back(size);
    parameters_known_ = true;
  }
  loaded_.store(true, std::memory_order_release);
}

void Kernel::allow(int bytes) const {
  if (bytes <= kAlwaysAllowed) return;
  check(driver().cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes),
        "cuFuncSetAttribute");
}

void Kernel::allow_dynamic_shared(int bytes) {
  if (bytes <= dynamic_shared_) return;
  const std::lock_guard lock(mutex_);
  if (bytes <= dynamic_shared_) return;
  if (loaded_) allow(bytes);
  dynamic_shared_ = bytes;
}

void Kernel::compare_parameters(const std::size_t* sizes, std::size_t count) const {
  if (!parameters_known_) return;
  if (count != parameter_sizes_.size())
    throw_internal("{} has {} parameters, {} were passed", name_, parameter_sizes_.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    if (sizes[i] != parameter_sizes_[i])
      throw_internal("{}: parameter {} has {} bytes, {} were passed", name_, i, parameter_sizes_[i], sizes[i]);
  }
}

void Kernel::launch_with(CUstream stream, const LaunchShape& shape, void** args, const std::size_t* sizes,
                         std::size_t count) const {
  load();
  compare_parameters(sizes, count);
  if (shape.blocks < 1 || shape.blocks > std::numeric_limits<int>::max())
    throw_internal("{}: a launch of {} blocks", name_, shape.blocks);
  if (shape.dynamic_shared_bytes > dynamic_shared_) {
    throw_internal("{}: a launch asks for {} bytes of shared memory, {} are allowed", name_, shape.dynamic_shared_bytes,
                   dynamic_shared_.load());
  }
  CUlaunchAttribute attributes[2];
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(shape.blocks);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(shape.threads);
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(shape.dynamic_shared_bytes);
  config.hStream = stream;
  config.attrs = attributes;
  if (shape.cluster > kPortableCluster) {
    check(driver().cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
          "cuFuncSetAttribute");
  }
  if (shape.cluster > 1) {
    CUlaunchAttribute& a = attributes[config.numAttrs++];
    a.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    a.value.clusterDim.x = static_cast<unsigned>(shape.cluster);
    a.value.clusterDim.y = a.value.clusterDim.z = 1;
  }
  if (shape.overlapping) {
    CUlaunchAttribute& a = attributes[config.numAttrs++];
    a.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    a.value.programmaticStreamSerializationAllowed = 1;
  }
  const CUresult result = driver().cuLaunchKernelEx(&config, function_, args, nullptr);
  if (result != CUDA_SUCCESS) {
    try {
      check(result, "cuLaunchKernelEx");
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {} ({} blocks of {} threads, {} bytes of shared memory)", name_,
                                            error.what(), shape.blocks, shape.threads, shape.dynamic_shared_bytes));
    }
  }
}

const Kernel& KernelLibrary::get(const KernelSource& source, int dynamic_shared_bytes) {
  Kernel* kernel = nullptr;
  bool made = false;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Kernel>& its = kernels_[source.to_string()];
    if ((made = !its)) its = std::make_unique<Kernel>(source, device_.architecture(), compiler_);
    kernel = its.get();
  }
  if (made) compiler_->ahead({source}, device_.architecture());
  kernel->allow_dynamic_shared(dynamic_shared_bytes);
  return *kernel;
}

}  // namespace gnomon::cuda
