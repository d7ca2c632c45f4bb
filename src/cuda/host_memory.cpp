#include "cuda/host_memory.hpp"

#include "cuda/device.hpp"

namespace gnomon::cuda {
namespace {

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(int ordinal) : device_(Device::shared(ordinal)) {}

  void* allocate(std::size_t bytes) override {
    const Device::Current current(*device_);
    CUdeviceptr address = 0;
    check(driver().cuMemAlloc(&address, bytes > 0 ? bytes : 1), "cuMemAlloc");
    return reinterpret_cast<void*>(address);
  }
  void free(void* memory) noexcept override {
    const Device::Current current(*device_);
    driver().cuMemFree(reinterpret_cast<CUdeviceptr>(memory));
  }
  void to_device(void* to, const void* from, std::size_t bytes) override {
    const Device::Current current(*device_);
    check(driver().cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(to), from, bytes, nullptr), "cuMemcpyHtoDAsync");
    synchronize();
  }
  void to_host(void* to, const void* from, std::size_t bytes) override {
    const Device::Current current(*device_);
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
    check(driver().cuMemcpyDtoHAsync(to, reinterpret_cast<CUdeviceptr>(from), bytes, nullptr), "cuMemcpyDtoHAsync");
    synchronize();
  }
  void synchronize() override {
    const Device::Current current(*device_);
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  }

 private:
  const std::shared_ptr<const Device> device_;
};

}  // namespace

std::unique_ptr<DeviceMemory> make_device_memory(int ordinal) { return std::make_unique<CudaMemory>(ordinal); }

}  // namespace gnomon::cuda
