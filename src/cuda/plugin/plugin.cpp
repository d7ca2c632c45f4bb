// The one way into libgnomon-cuda.so.
#include "core/error.hpp"
#include "cuda/absent_device.hpp"
#include "cuda/cublaslt.hpp"
#include "cuda/cuda_backend.hpp"
#include "cuda/cudnn.hpp"
#include "cuda/device.hpp"
#include "cuda/host_memory.hpp"
#include "cuda/kernel_cache.hpp"
#include "cuda/nvrtc.hpp"
#include "cuda/precompile.hpp"
#include "engine/device_plugin.hpp"

namespace gnomon::cuda {
namespace {

void connect_log(void (*write)(log::Level, std::string_view)) { log::set_sink(write); }

std::vector<DeviceDescription> devices() {
  std::vector<DeviceDescription> all;
  for (int i = 0; i < device_count(); ++i) {
    const DeviceProperties p = device_properties(i);
    all.push_back({.name = fmt::format("cuda:{}", i),
                   .model = p.name,
                   .compute_capability = fmt::format("{}.{}", p.major, p.minor),
                   .multiprocessors = p.multiprocessors,
                   .memory_bytes = p.total_bytes});
  }
  return all;
}

template <typename Version>
LibraryVersion version_of(const char* name, Version version) {
  try {
    return {name, version(), {}};
  } catch (const Error& error) {
    return {name, {}, error.what()};
  }
}

std::vector<LibraryVersion> libraries() {
  const auto of_driver = [] { return fmt::format("{}.{}", driver().version / 1000, driver().version % 1000 / 10); };
  return {version_of("driver", of_driver), version_of("NVRTC", [] { return nvrtc().version_text; }),
          version_of("cuBLASLt", [] { return cublaslt().version_text; }),
          version_of("cuDNN", [] { return cudnn().version_text; })};
}

constexpr DevicePlugin kPlugin = {
    connect_log,        make_cuda_backend,
    make_device_memory, devices,
    libraries,          {precompile, AbsentDevice::known, default_kernel_cache, kernel_files, remove_kernel_files}};

}  // namespace
}  // namespace gnomon::cuda

extern "C" {
[[gnu::visibility("default")]] const char* gnomon_device_plugin_build_id() { return gnomon::device_plugin_build_id(); }
[[gnu::visibility("default")]] const gnomon::DevicePlugin* gnomon_device_plugin() { return &gnomon::cuda::kPlugin; }
}
