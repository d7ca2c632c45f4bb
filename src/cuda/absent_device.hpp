// A device that is not there. While it lives, NVIDIA's driver and cuBLASLt are replaced by ones that take every call
// and do nothing, so the backend's own code runs and what it would ask such a device for can be noted: which kernels it
// loads, and how it launches them. For the whole process, and one at a time; nothing is computed.
#pragma once

#include <string>
#include <vector>

#include "cuda/architecture.hpp"

namespace gnomon::cuda {

class AbsentDevice {
 public:
  // Caller error for an architecture whose devices are not known, or that none of them takes (sm_90). compute_80 is the
  // portable form, as a device of 8.0 with GNOMON_CUDA_ARCH=compute_80 takes it.
  explicit AbsentDevice(const Architecture& architecture);
  ~AbsentDevice();
  AbsentDevice(const AbsentDevice&) = delete;
  AbsentDevice& operator=(const AbsentDevice&) = delete;

  static std::vector<std::string> known();  // "sm_80", "sm_86", ..., "compute_80", ...

  // Modules are known by the number that their image is written as. The most dynamic shared memory of the launches of
  // its kernel; -1: it was loaded and never launched, or not loaded.
  int dynamic_shared_bytes(std::size_t module) const;
};

}  // namespace gnomon::cuda
