#include "cuda/device.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "core/error.hpp"

namespace gnomon::cuda {
namespace {

int attribute(CUdevice_attribute which, CUdevice device) {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

// The device as one of that architecture: no more of its instructions, no more shared memory than all such have.
void take_for(const Architecture& architecture, DeviceProperties& p) {
  p.major = architecture.major;
  p.minor = architecture.minor;
  const ArchitectureFacts* facts = facts_of(p.major, p.minor);
  if (!facts) return;
  p.max_shared_bytes = std::min(p.max_shared_bytes, facts->max_shared_bytes);
  p.shared_bytes_per_multiprocessor =
      std::min(p.shared_bytes_per_multiprocessor, facts->shared_bytes_per_multiprocessor);
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
  p.clock_hz = 1e3 * attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device);
  p.memory_bytes_per_second = 2e3 * attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device) *
                              attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device) / 8;
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
  const char* absent = absent_architecture();
  architecture_ = absent ? Architecture::parse(absent)
                         : architecture_for(properties_.major, properties_.minor, std::getenv("GNOMON_CUDA_ARCH"));
  if (architecture_ != Architecture::of_device(properties_.major, properties_.minor))
    take_for(architecture_, properties_);
  device_ = device_at(ordinal);
  check(driver().cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

Device::~Device() { driver().cuDevicePrimaryCtxRelease(device_); }

Device::Current::Current(const Device& device) {
  check(driver().cuCtxPushCurrent(device.context_), "cuCtxPushCurrent");
  driver().cuThreadExchangeStreamCaptureMode(&mode_);
}

Device::Current::~Current() {
  driver().cuThreadExchangeStreamCaptureMode(&mode_);
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent(&popped);
}

std::int64_t Device::free_bytes() const {
  const Current current(*this);
  std::size_t free = 0, total = 0;
  check(driver().cuMemGetInfo(&free, &total), "cuMemGetInfo");
  return static_cast<std::int64_t>(free);
}

void Device::require(const void* address, const char* what) const {
  int place = -1;
  const CUresult result = driver().cuPointerGetAttribute(&place, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                         reinterpret_cast<CUdeviceptr>(address));
  if (result == CUDA_SUCCESS && place == ordinal_) return;
  throw_caller("{}: expected memory of cuda:{} (the engine's device), got {}", what, ordinal_,
               result == CUDA_SUCCESS ? fmt::format("memory of cuda:{}", place) : "memory of the host");
}

std::shared_ptr<const Device> Device::shared(int ordinal) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<const Device>> devices;
  const std::lock_guard lock(mutex);
  if (auto device = devices[ordinal].lock()) return device;
  auto device = std::make_shared<const Device>(ordinal);
  devices[ordinal] = device;
  return device;
}

}  // namespace gnomon::cuda
