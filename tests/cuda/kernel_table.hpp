// Every kernel with the architectures that it must compile for: the portable ones run from compute capability 8.0 on.
#pragma once

#include <string>
#include <vector>

#include "cuda/compiler.hpp"

namespace gnomon::cuda {

inline const std::vector<std::string> kPortable = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"};
inline const std::vector<std::string> kHopper = {"sm_90a"};

struct KernelCase {
  KernelSource source;
  std::vector<std::string> architectures = kPortable;
  bool mma = false;    // must hold mma.sync's instructions
  bool wgmma = false;  // must hold wgmma's
};

std::vector<KernelCase> portable_kernels();  // portable_kernels.hpp
std::vector<KernelCase> resident_kernels();  // resident_kernels.hpp

inline std::vector<KernelCase> kernel_table() {
  std::vector<KernelCase> table = portable_kernels();
  for (KernelCase& kernel : resident_kernels()) table.push_back(std::move(kernel));
  return table;
}

}  // namespace gnomon::cuda
