#include "cuda/device.hpp"

#include "core/error.hpp"

namespace gnomon::cuda {
namespace {

int attribute(CUdevice_attribute which, CUdevice device) {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

CUdevice device_at(int ordinal) {
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, ordinal), "cuDeviceGet");
  return device;
}

}  // namespace

int device_count() {
  int count = 0;
  check(driver().cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

DeviceProperties device_properties(int ordinal) {
  const CUdevice device = device_at(ordinal);
  DeviceProperties p;
  char name[256] = {};
  check(driver().cuDeviceGetName(name, sizeof name - 1, device), "cuDeviceGetName");
  p.name = name;
  p.major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  p.minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  p.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  p.max_shared_bytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
  p.shared_bytes_per_multiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device);
  p.max_threads_per_multiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
  p.l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device);
  std::size_t total = 0;
  check(driver().cuDeviceTotalMem(&total, device), "cuDeviceTotalMem");
  p.total_bytes = static_cast<std::int64_t>(total);
  return p;
}

Device::Device(int ordinal) : ordinal_(ordinal) {
  const int count = device_count();
  if (ordinal < 0 || ordinal >= count) {
    throw_environment("device 'cuda:{}': this machine shows {} CUDA device{} to this process{}", ordinal, count,
                      count == 1 ? "" : "s", count == 0 ? "" : fmt::format(", cuda:0 to cuda:{}", count - 1));
  }
  properties_ = device_properties(ordinal);
  if (properties_.major < 8) {
    throw_environment("device 'cuda:{}' ({}) has compute capability {}.{}; Gnomon needs 8.0 or newer", ordinal,
                      properties_.name, properties_.major, properties_.minor);
  }
  properties_architecture_ = Architecture::of_device(properties_.major, properties_.minor);
  device_ = device_at(ordinal);
  check(driver().cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

Device::~Device() { driver().cuDevicePrimaryCtxRelease(device_); }

Device::Current::Current(const Device& device) {
  check(driver().cuCtxPushCurrent(device.context_), "cuCtxPushCurrent");
}

Device::Current::~Current() {
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent(&popped);
}

std::int64_t Device::free_bytes() const {
  const Current current(*this);
  std::size_t free = 0, total = 0;
  check(driver().cuMemGetInfo(&free, &total), "cuMemGetInfo");
  return static_cast<std::int64_t>(free);
}

}  // namespace gnomon::cuda
