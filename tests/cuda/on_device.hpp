// Kernel tests: a device if there is one, and arrays in its memory between guard zones.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "core/error.hpp"
#include "cuda/arrays.hpp"
#include "cuda/driver.hpp"
#include "cuda/kernel.hpp"

namespace gnomon::test {

// A device and its kernels, shared by the tests of a process.
class OnDevice : public testing::Test {
 protected:
  static cuda::KernelLibrary& library() { return *state().library; }
  static const cuda::Device* device() { return state().device.get(); }
  static const cuda::DeviceProperties& properties() { return state().device->properties(); }

  void SetUp() override {
    try {
      state();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::environment) throw;
      GTEST_SKIP() << error.what();
    }
  }
  static void synchronize() { cuda::check(cuda::driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize"); }

 private:
  struct State {
    std::unique_ptr<cuda::Device> device = std::make_unique<cuda::Device>(0);
    cuda::Device::Current current{*device};  // for the whole process
    std::unique_ptr<cuda::KernelLibrary> library =
        std::make_unique<cuda::KernelLibrary>(*device, std::make_shared<cuda::Compiler>());
  };
  static State& state() {
    static const bool asked = take_conditions_away();
    static_cast<void>(asked);
    static State* const shared = new State;  // kernels outlive the driver's own shutdown otherwise
    return *shared;
  }
  // For sanitizers, which know the memory that there was when a graph was made, and take what a body under a condition
  // reads of younger memory for out of bounds. Without conditional nodes the host launches the same kernels.
  static bool take_conditions_away() {
    if (std::getenv("GNOMON_TEST_WITHOUT_CONDITIONS") == nullptr) return false;
    static cuda::Driver older = cuda::driver();
    older.cuGraphAddNode_v1 = nullptr;
    cuda::use_driver(&older);
    return true;
  }
};

// Bytes in device memory with a guard zone on both sides; all of it 0xff at first, which is NaN in every type.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    cuda::check(cuda::driver().cuMemAlloc(&base_, bytes_ + 2 * kGuard), "cuMemAlloc");
    cuda::check(cuda::driver().cuMemsetD8Async(base_, 0xff, bytes_ + 2 * kGuard, nullptr), "cuMemsetD8Async");
  }
  ~DeviceBytes() { cuda::driver().cuMemFree(base_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  template <typename T = void>
  T* data() const {
    return reinterpret_cast<T*>(base_ + kGuard);
  }
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_); }
  void upload(const void* from) {
    cuda::check(cuda::driver().cuMemcpyHtoDAsync(base_ + kGuard, from, bytes_, nullptr), "cuMemcpyHtoDAsync");
    cuda::check(cuda::driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  }
  std::vector<unsigned char> download() const {
    const auto all = raw();
    return {all.begin() + kGuard, all.end() - kGuard};
  }
  bool guards_intact() const {
    const auto all = raw();
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (all[i] != 0xff || all[all.size() - 1 - i] != 0xff) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  std::vector<unsigned char> raw() const {
    std::vector<unsigned char> all(bytes_ + 2 * kGuard);
    cuda::check(cuda::driver().cuMemcpyDtoHAsync(all.data(), base_, all.size(), nullptr), "cuMemcpyDtoHAsync");
    cuda::check(cuda::driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    return all;
  }
  std::size_t bytes_;
  CUdeviceptr base_ = 0;
};

using DeviceArray = ArrayOf<DeviceBytes>;
using DeviceTensor = TensorOf<DeviceBytes>;

}  // namespace gnomon::test
