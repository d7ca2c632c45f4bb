#include "cuda/driver.hpp"

#include <array>
#include <atomic>
#include <new>

#include "core/error.hpp"
#include "cuda/dynamic_library.hpp"

namespace gnomon::cuda {
namespace {

constexpr int kOldest = 12000;  // thread-block clusters, lazily loaded modules, graphs that may be launched again

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

DynamicLibrary open_driver() {
  try {
    const std::array names = {std::string("libcuda.so.1")};
    return DynamicLibrary::open("NVIDIA's driver", names, {});
  } catch (const Error&) {  // it is the system's: no folder of ours would help
    throw_environment("there is no NVIDIA driver here: libcuda.so.1 is not in the loader's folders");
  }
}

Driver load() {
  const DynamicLibrary library = open_driver();
  Driver api;
#define GNOMON_CUDA_TEXT(name) #name
#define GNOMON_CUDA_BIND(name) library.bind(api.name, GNOMON_CUDA_TEXT(name));
  library.bind(api.cuDriverGetVersion, "cuDriverGetVersion");
  if (api.cuDriverGetVersion(&api.version) != CUDA_SUCCESS || api.version < kOldest) {
    throw_environment("NVIDIA's driver ({}) is of CUDA {}; Gnomon needs {} or newer", library.path().string(),
                      version_text(api.version), version_text(kOldest));
  }
  GNOMON_CUDA_DRIVER(GNOMON_CUDA_BIND)
#undef GNOMON_CUDA_BIND
#undef GNOMON_CUDA_TEXT
  library.bind(api.cuStreamGetCaptureInfo_v2, "cuStreamGetCaptureInfo_v2");
  api.cuFuncGetParamInfo = reinterpret_cast<decltype(api.cuFuncGetParamInfo)>(library.find("cuFuncGetParamInfo"));
  if (api.version >= 12040) {
    library.bind(api.cuGraphConditionalHandleCreate, "cuGraphConditionalHandleCreate");
    library.bind(api.cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph");
    library.bind(api.cuGraphAddNode_v1, "cuGraphAddNode");
  }
  if (const CUresult result = api.cuInit(0); result != CUDA_SUCCESS) {
    const char* text = nullptr;
    api.cuGetErrorString(result, &text);
    throw_environment("NVIDIA's driver cannot be used: {} (error {} of cuInit)", text ? text : "unknown reason",
                      static_cast<int>(result));
  }
  return api;
}

std::atomic<const Driver*> instead = nullptr;

}  // namespace

const Driver& driver() {
  if (const Driver* other = instead.load(std::memory_order_acquire)) return *other;
  static const Driver api = load();  // a failure is tried again: it may have been repaired
  return api;
}

const Driver* use_driver(const Driver* other) { return instead.exchange(other); }

const char* absent_architecture() {
  const Driver* other = instead.load(std::memory_order_acquire);
  return other ? other->absent : nullptr;
}

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw std::bad_alloc();
  const char *name = nullptr, *text = nullptr;
  driver().cuGetErrorName(result, &name);
  driver().cuGetErrorString(result, &text);
  throw_environment("{} failed: {} ({})", call, name ? name : std::to_string(result), text ? text : "no description");
}

}  // namespace gnomon::cuda
