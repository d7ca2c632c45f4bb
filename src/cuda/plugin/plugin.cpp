// The one way into libgnomon-cuda.so.
#include "core/error.hpp"
#include "core/memory.hpp"
#include "cuda/cublaslt.hpp"
#include "cuda/cuda_backend.hpp"
#include "cuda/device.hpp"
#include "cuda/host_memory.hpp"
#include "cuda/nvrtc.hpp"
#include "engine/device_plugin.hpp"

namespace gnomon::cuda {
namespace {

void connect_log(void (*write)(log::Level, std::string_view)) { log::set_sink(write); }

std::vector<DeviceDescription> devices() {
  std::vector<DeviceDescription> all;
  for (int i = 0; i < device_count(); ++i) {
    const DeviceProperties p = device_properties(i);
    all.push_back({fmt::format("cuda:{}", i),
                   fmt::format("{}, compute capability {}.{}, {} multiprocessors, {}", p.name, p.major, p.minor,
                               p.multiprocessors, format_bytes(static_cast<double>(p.total_bytes)))});
  }
  return all;
}

template <typename Version>
std::string version_or_reason(const char* name, Version version) {
  try {
    return fmt::format("{} {}", name, version());
  } catch (const Error& error) {
    return fmt::format("{} missing ({})", name, error.what());
  }
}

std::string libraries() {
  return version_or_reason("driver",
                           [] { return fmt::format("{}.{}", driver().version / 1000, driver().version % 1000 / 10); }) +
         ", " + version_or_reason("NVRTC", [] { return nvrtc().version_text; }) + ", " +
         version_or_reason("cuBLASLt", [] { return cublaslt().version_text; });
}

constexpr DevicePlugin kPlugin = {connect_log, make_cuda_backend, make_device_memory, devices, libraries};

}  // namespace
}  // namespace gnomon::cuda

extern "C" {
[[gnu::visibility("default")]] const char* gnomon_device_plugin_build_id() { return gnomon::device_plugin_build_id(); }
[[gnu::visibility("default")]] const gnomon::DevicePlugin* gnomon_device_plugin() { return &gnomon::cuda::kPlugin; }
}
