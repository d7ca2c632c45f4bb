// Memory of the device that is current when it is made and when it is given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cuda/driver.hpp"

namespace gnomon::cuda {

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {  // std::bad_alloc when the device has no room
    if (bytes > 0) check(driver().cuMemAlloc(&address_, bytes), "cuMemAlloc");
  }
  ~DeviceBuffer() {
    if (address_) driver().cuMemFree(address_);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : address_(std::exchange(other.address_, 0)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(address_);
  }
  CUdeviceptr address() const { return address_; }
  std::size_t bytes() const { return bytes_; }

 private:
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;
};

// Pinned memory of the host that the device reads and writes at the same address.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes) {
    check(driver().cuMemHostAlloc(&data_, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
          "cuMemHostAlloc");
  }
  ~PinnedBuffer() { driver().cuMemFreeHost(data_); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

// A stream of our own, for work that no caller waits for.
class Stream {
 public:
  Stream() { check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"); }
  ~Stream() { driver().cuStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator CUstream() const { return stream_; }
  void synchronize() const { check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

 private:
  CUstream stream_ = nullptr;
};

}  // namespace gnomon::cuda
