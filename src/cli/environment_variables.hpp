// Every variable that Gnomon obeys; docs/environment_variables.md says the same at more length.
#pragma once

#include <array>

namespace gnomon::cli {

struct EnvironmentVariable {
  const char *name, *meaning;
};

inline constexpr std::array environment_variables = {
    EnvironmentVariable{"GNOMON_PLAN_DIR", "folder of stored plans"},
    EnvironmentVariable{"GNOMON_LOG", "error, warn (default), info or debug"},
    EnvironmentVariable{"GNOMON_ISA", "sse4, avx2, avx512 or neon: forces the CPU backend's vector code"},
    EnvironmentVariable{"GNOMON_CUDA_PLUGIN", "the CUDA backend's file, libgnomon-cuda.so"},
    EnvironmentVariable{"GNOMON_CUDA_LIBRARIES", "folders of NVIDIA's libraries, where the loader finds none"},
    EnvironmentVariable{"GNOMON_CUDA_ARCH", "sm_80, compute_80, ...: what CUDA kernels are compiled for"},
    EnvironmentVariable{"GNOMON_KERNEL_CACHE", "folder of compiled CUDA kernels"},
};

}  // namespace gnomon::cli
