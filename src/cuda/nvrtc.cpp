#include "cuda/nvrtc.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.hpp"
#include "cuda/dynamic_library.hpp"

namespace gnomon::cuda {
namespace {

// The compiler opens its builtins by name alone when it first compiles, and PyPI's package lies in no folder of the
// loader's. Opened from beside the compiler beforehand, they are found. Where that fails, the compiler's own error says
// what is missing.
void open_builtins(const std::filesystem::path& compiler, std::string_view version) {
  const auto builtins = compiler.parent_path() / fmt::format("libnvrtc-builtins.so.{}", version);
  if (!dlopen(builtins.c_str(), RTLD_NOW | RTLD_LOCAL)) dlerror();
}

Nvrtc load() {
  const std::array names = {std::string("libnvrtc.so.13"), std::string("libnvrtc.so.12")};
  const DynamicLibrary library = DynamicLibrary::open("NVIDIA's run-time compiler", names, cuda_library_folders());
  Nvrtc api;
  library.bind(api.version, "nvrtcVersion");
  library.bind(api.error_string, "nvrtcGetErrorString");
  library.bind(api.supported_arch_count, "nvrtcGetNumSupportedArchs");
  library.bind(api.supported_archs, "nvrtcGetSupportedArchs");
  library.bind(api.create, "nvrtcCreateProgram");
  library.bind(api.destroy, "nvrtcDestroyProgram");
  library.bind(api.add_name, "nvrtcAddNameExpression");
  library.bind(api.compile, "nvrtcCompileProgram");
  library.bind(api.log_size, "nvrtcGetProgramLogSize");
  library.bind(api.log, "nvrtcGetProgramLog");
  library.bind(api.cubin_size, "nvrtcGetCUBINSize");
  library.bind(api.cubin, "nvrtcGetCUBIN");
  library.bind(api.ptx_size, "nvrtcGetPTXSize");
  library.bind(api.ptx, "nvrtcGetPTX");
  library.bind(api.lowered_name, "nvrtcGetLoweredName");
  int major = 0, minor = 0, count = 0;
  if (api.version(&major, &minor) != 0 || api.supported_arch_count(&count) != 0 || count < 1)
    throw_environment("{} does not answer: it is broken", library.path().string());
  api.version_text = fmt::format("{}.{}", major, minor);
  api.path = library.path().string();
  open_builtins(library.path(), api.version_text);
  std::vector<int> archs(static_cast<std::size_t>(count));
  api.supported_archs(archs.data());
  api.newest_arch = *std::max_element(archs.begin(), archs.end());
  return api;
}

}  // namespace

const Nvrtc& nvrtc() {
  static const Nvrtc api = load();
  return api;
}

}  // namespace gnomon::cuda
