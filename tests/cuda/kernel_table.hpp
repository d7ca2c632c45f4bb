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

inline std::vector<KernelCase> kernel_table() {
  std::vector<KernelCase> table;
  return table;
}

}  // namespace gnomon::cuda
