// Memory of a device, for programs whose tensors come from the host (the command line). An engine needs none of this:
// its tensors are the caller's.
#pragma once

#include <cstddef>
#include <memory>

namespace gnomon {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* allocate(std::size_t bytes) = 0;  // std::bad_alloc when there is none
  virtual void free(void* memory) noexcept = 0;
  // Complete on return, and after all work that was given to the device before.
  virtual void to_device(void* to, const void* from, std::size_t bytes) = 0;
  virtual void to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void synchronize() = 0;
};

}  // namespace gnomon
