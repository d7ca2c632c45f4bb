// Device memory for tensors that come from the host.
#pragma once

#include <memory>

#include "plan/device_memory.hpp"

namespace gnomon::cuda {

std::unique_ptr<DeviceMemory> make_device_memory(int ordinal);

}  // namespace gnomon::cuda
