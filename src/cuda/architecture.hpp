// What code is compiled for: "sm_80" to "sm_120" are machine code of one compute capability, "sm_90a" with the
// instructions that only it has; "compute_80" is PTX, which the driver translates for any device from 8.0.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gnomon::cuda {

struct Architecture {
  int major = 8, minor = 0;
  bool accelerated = false;  // sm_90a: wgmma, setmaxnreg
  bool portable = false;     // compute_80: PTX

  static Architecture of_device(int major, int minor) { return {major, minor, major == 9 && minor == 0, false}; }
  static Architecture parse(std::string_view name);  // caller error
  std::string name() const;
  bool operator==(const Architecture&) const = default;
};

// Kernels for compute capability 9.0 use what only sm_90a has: sm_90 and compute_90 are no architectures of a device.
std::optional<std::string> refuses_architecture(const Architecture& architecture);

// What to compile for on a device: its own, or what GNOMON_CUDA_ARCH asks for (null, empty: nothing). Environment error
// when the device does not run that.
Architecture architecture_for(int major, int minor, const char* asked);

// What kernels are chosen by where no device can be asked. The first numbers are the compute capability's own, the same
// for all its devices (CUDA's programming guide, "Technical Specifications per Compute Capability"). Those of a device
// of the kind, its rates as its maker states them, decide which slices are tried, how many blocks are launched, and how
// large a part of a call a planning takes.
struct ArchitectureFacts {
  int major, minor;
  int max_shared_bytes, shared_bytes_per_multiprocessor, max_threads_per_multiprocessor;
  const char* like;  // the device that the rest is of
  int multiprocessors, l2_bytes;
  std::int64_t memory_bytes;
  double clock_hz, memory_bytes_per_second;
};
std::span<const ArchitectureFacts> architecture_facts();
const ArchitectureFacts* facts_of(int major, int minor);  // null: not known

}  // namespace gnomon::cuda
