// One device and its primary context, which frameworks in the process share with us.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cuda/architecture.hpp"
#include "cuda/driver.hpp"

namespace gnomon::cuda {

struct DeviceProperties {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int max_shared_bytes = 0;  // of one block, when it asks for more than 48 KiB
  int shared_bytes_per_multiprocessor = 0;
  int max_threads_per_multiprocessor = 0;
  std::int64_t l2_bytes = 0, total_bytes = 0;
  double clock_hz = 0, memory_bytes_per_second = 0;  // as the device states them
};

int device_count();  // environment error when there is no driver
DeviceProperties device_properties(int ordinal);

class Device {
 public:
  explicit Device(int ordinal);  // environment error: how many devices there are; below compute capability 8.0
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Makes the device the calling thread's current one while it lives; the caller's is current again afterwards. What is
  // unsafe while somebody captures a stream (taking memory, loading kernels) is allowed meanwhile: ours goes elsewhere.
  class Current {
   public:
    explicit Current(const Device& device);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  };

  int ordinal() const { return ordinal_; }
  const DeviceProperties& properties() const { return properties_; }
  Architecture architecture() const { return architecture_; }
  std::int64_t free_bytes() const;
  // Caller error, naming both places, unless the address is of this device's memory. `what`: "input".
  void require(const void* address, const char* what) const;

  static std::shared_ptr<const Device> shared(int ordinal);  // one for the process while somebody holds it

 private:
  int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  DeviceProperties properties_;
  Architecture architecture_;
};

}  // namespace gnomon::cuda
