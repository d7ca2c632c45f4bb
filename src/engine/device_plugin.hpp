// Backends that are libraries of their own, loaded when a device of theirs is asked for. The CUDA one is
// libgnomon-cuda.so; both sides include this file, and a plugin built from other headers is refused by its build id.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/log.hpp"
#include "core/weights.hpp"
#include "engine/device_kernels.hpp"
#include "plan/backend.hpp"
#include "plan/device_memory.hpp"

namespace gnomon {

struct DeviceDescription {
  std::string name;                // "cuda:0"
  std::string model;               // "NVIDIA H200"
  std::string compute_capability;  // "9.0"
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
};

struct LibraryVersion {
  std::string name, version;  // "NVRTC", "13.0"
  std::string missing;        // why it is not there
};

struct DevicePlugin {
  void (*connect_log)(void (*write)(log::Level, std::string_view));  // its messages go where ours go
  std::unique_ptr<Backend> (*make_backend)(int ordinal, std::shared_ptr<const Weights> weights,
                                           const Constraints& constraints);
  std::unique_ptr<DeviceMemory> (*make_memory)(int ordinal);
  std::vector<DeviceDescription> (*devices)();
  std::vector<LibraryVersion> (*libraries)();  // driver, NVRTC, cuBLASLt, cuDNN
  DeviceKernels kernels;
};

// A hash of the headers that both sides share, and of the compiler: made by cmake/cuda.cmake.
const char* device_plugin_build_id();

// Loads the plugin once: GNOMON_CUDA_PLUGIN, else beside the library or program that this code is in, else in ../lib of
// it. Environment error in one line when it cannot be had.
const DevicePlugin& cuda_plugin();

// Memory of a device by its name; null for the CPU, whose memory is the host's.
std::unique_ptr<DeviceMemory> make_device_memory(std::string_view device);

// "cuda:3" -> 3. Caller error when it is nothing of the kind.
int cuda_ordinal(std::string_view device);

extern "C" {
using DevicePluginBuildId = const char*();
using DevicePluginEntry = const DevicePlugin*();
}
inline constexpr const char* kDevicePluginBuildId = "gnomon_device_plugin_build_id";
inline constexpr const char* kDevicePluginEntry = "gnomon_device_plugin";

}  // namespace gnomon
