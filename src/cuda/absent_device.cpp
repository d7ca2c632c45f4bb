#include "cuda/absent_device.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "core/error.hpp"
#include "cuda/cublaslt.hpp"
#include "cuda/driver.hpp"

namespace gnomon::cuda {
namespace {

// What the absent device did: there is one at a time.
struct State {
  std::string name;  // "sm_90a"
  const ArchitectureFacts* facts = nullptr;
  std::vector<int> dynamic_shared;  // by module
  CUdeviceptr next_address = CUdeviceptr{1} << 40;
};
std::optional<State> state;

template <typename Handle>
Handle handle(std::uintptr_t number = 1) {
  return reinterpret_cast<Handle>(number);
}
template <typename Handle>
std::size_t number_of(Handle handle) {
  return static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(handle));
}

constexpr int kBusBits = 4096;

// A function of the driver's that does nothing.
template <typename Function>
struct Nothing;
template <typename... Args>
struct Nothing<CUresult (*)(Args...)> {
  static CUresult call(Args...) { return CUDA_SUCCESS; }
};

CUresult attribute(int* value, CUdevice_attribute which, CUdevice) {
  const ArchitectureFacts& facts = *state->facts;
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return *value = facts.major, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return *value = facts.minor, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return *value = facts.multiprocessors, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return *value = facts.max_shared_bytes, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return *value = facts.shared_bytes_per_multiprocessor, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return *value = facts.max_threads_per_multiprocessor, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return *value = facts.l2_bytes, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:  // kHz
      return *value = static_cast<int>(facts.clock_hz / 1e3), CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return *value = kBusBits, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:  // kHz, each clock moves two bits a line
      return *value = static_cast<int>(facts.memory_bytes_per_second * 8 / (2e3 * kBusBits)), CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult load_module(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  const auto index = static_cast<std::size_t>(std::atoll(static_cast<const char*>(image)));
  if (state->dynamic_shared.size() <= index) state->dynamic_shared.resize(index + 1, -1);
  *module = handle<CUmodule>(index + 1);
  return CUDA_SUCCESS;
}

CUresult launch(const CUlaunchConfig* config, CUfunction function, void**, void**) {
  int& most = state->dynamic_shared[number_of(function) - 1];
  most = std::max(most, static_cast<int>(config->sharedMemBytes));
  return CUDA_SUCCESS;
}

// Within a capture each launch is followed by a look at the node that it became.
CUresult capture_info(CUstream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph*, const CUgraphNode** nodes,
                      std::size_t* count) {
  static const CUgraphNode node = handle<CUgraphNode>();
  *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  *nodes = &node;
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult add_node(CUgraphNode* node, CUgraph, const CUgraphNode*, std::size_t, CUgraphNodeParams* params) {
  static CUgraph body = handle<CUgraph>();
  *node = handle<CUgraphNode>();
  params->conditional.phGraph_out = &body;
  return CUDA_SUCCESS;
}

Driver make_driver() {
  Driver api;
#define GNOMON_CUDA_NOTHING(name) api.name = Nothing<decltype(api.name)>::call;
  GNOMON_CUDA_DRIVER(GNOMON_CUDA_NOTHING)
#undef GNOMON_CUDA_NOTHING
  api.version = 13000;
  api.cuDeviceGetCount = [](int* count) { return *count = 1, CUDA_SUCCESS; };
  api.cuDeviceGet = [](CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; };
  api.cuDeviceGetName = [](char* name, int size, CUdevice) {
    std::strncpy(name, state->facts->like, static_cast<std::size_t>(size));
    return CUDA_SUCCESS;
  };
  api.cuDeviceGetAttribute = attribute;
  api.cuDeviceTotalMem = [](std::size_t* bytes, CUdevice) {
    return *bytes = static_cast<std::size_t>(state->facts->memory_bytes), CUDA_SUCCESS;
  };
  api.cuDevicePrimaryCtxRetain = [](CUcontext* c, CUdevice) { return *c = handle<CUcontext>(), CUDA_SUCCESS; };
  api.cuCtxGetCurrent = [](CUcontext* context) { return *context = handle<CUcontext>(), CUDA_SUCCESS; };
  api.cuMemGetInfo = [](std::size_t* free, std::size_t* total) {
    return *free = *total = static_cast<std::size_t>(state->facts->memory_bytes), CUDA_SUCCESS;
  };
  api.cuMemAlloc = [](CUdeviceptr* address, std::size_t bytes) {
    *address = state->next_address;
    state->next_address += (bytes + 511) / 512 * 512;  // as aligned as the driver's own
    return CUDA_SUCCESS;
  };
  api.cuMemcpyDtoHAsync = [](void* to, CUdeviceptr, std::size_t bytes, CUstream) {
    return std::memset(to, 0, bytes), CUDA_SUCCESS;
  };
  api.cuMemHostAlloc = [](void** memory, std::size_t bytes, unsigned) {
    return (*memory = std::calloc(1, bytes)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  };
  api.cuMemFreeHost = [](void* memory) { return std::free(memory), CUDA_SUCCESS; };
  api.cuPointerGetAttribute = [](void* value, CUpointer_attribute, CUdeviceptr) {
    return *static_cast<int*>(value) = 0, CUDA_SUCCESS;  // the device's ordinal
  };
  api.cuModuleLoadDataEx = load_module;
  api.cuModuleGetFunction = [](CUfunction* function, CUmodule module, const char*) {
    return *function = handle<CUfunction>(number_of(module)), CUDA_SUCCESS;
  };
  api.cuOccupancyMaxActiveBlocksPerMultiprocessor = [](int* blocks, CUfunction, int, std::size_t) {
    return *blocks = 1, CUDA_SUCCESS;
  };
  api.cuLaunchKernelEx = launch;
  api.cuStreamCreate = [](CUstream* stream, unsigned) { return *stream = handle<CUstream>(), CUDA_SUCCESS; };
  api.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
  };
  api.cuStreamGetCaptureInfo_v2 = capture_info;
  api.cuStreamEndCapture = [](CUstream, CUgraph* graph) { return *graph = handle<CUgraph>(), CUDA_SUCCESS; };
  api.cuStreamBeginCaptureToGraph = [](auto...) { return CUDA_SUCCESS; };
  api.cuEventCreate = [](CUevent* event, unsigned) { return *event = handle<CUevent>(), CUDA_SUCCESS; };
  api.cuGraphCreate = [](CUgraph* graph, unsigned) { return *graph = handle<CUgraph>(), CUDA_SUCCESS; };
  api.cuGraphInstantiate = [](CUgraphExec* exec, auto...) { return *exec = handle<CUgraphExec>(), CUDA_SUCCESS; };
  api.cuGraphConditionalHandleCreate = [](CUgraphConditionalHandle* made, auto...) { return *made = 1, CUDA_SUCCESS; };
  api.cuGraphAddNode_v1 = add_node;
  return api;
}

CublasLt make_cublaslt() {
  CublasLt api;
  api.create = [](lt::Handle* made) { return *made = handle<lt::Handle>(), int{lt::success}; };
  api.destroy = [](lt::Handle) { return int{lt::success}; };
  api.version = []() -> std::size_t { return 0; };
  api.status_string = [](int) { return "a status of a library that is not there"; };
  api.desc_create = [](lt::Desc* made, int, int) { return *made = handle<lt::Desc>(), int{lt::success}; };
  api.desc_destroy = [](lt::Desc) { return int{lt::success}; };
  api.desc_set = [](auto...) { return int{lt::success}; };
  api.layout_create = [](lt::Layout* made, auto...) { return *made = handle<lt::Layout>(), int{lt::success}; };
  api.layout_destroy = [](lt::Layout) { return int{lt::success}; };
  api.layout_set = [](auto...) { return int{lt::success}; };
  api.preference_create = [](lt::Preference* made) { return *made = handle<lt::Preference>(), int{lt::success}; };
  api.preference_destroy = [](lt::Preference) { return int{lt::success}; };
  api.preference_set = [](auto...) { return int{lt::success}; };
  api.heuristics = [](lt::Handle, lt::Desc, lt::Layout, lt::Layout, lt::Layout, lt::Layout, lt::Preference, int wanted,
                      lt::HeuristicResult* results, int* found) {
    for (int i = 0; i < wanted; ++i) results[i] = {};
    return *found = wanted, int{lt::success};
  };
  api.matmul = [](auto...) { return int{lt::success}; };
  api.version_text = "absent";
  return api;
}

const ArchitectureFacts& facts_for(const Architecture& architecture) {
  if (const auto reason = refuses_architecture(architecture))
    throw_caller("architecture {}: {}", architecture.name(), *reason);
  const ArchitectureFacts* facts = facts_of(architecture.major, architecture.minor);
  if (!facts) {
    throw_caller("architecture {}: its devices are not known; known are {}", architecture.name(),
                 fmt::join(AbsentDevice::known(), ", "));
  }
  return *facts;
}

}  // namespace

AbsentDevice::AbsentDevice(const Architecture& architecture) {
  if (state) throw_internal("there is an absent device already");
  static const CublasLt products = make_cublaslt();
  static Driver driver_of_it = make_driver();
  const ArchitectureFacts& facts = facts_for(architecture);
  state.emplace().name = architecture.name();
  state->facts = &facts;
  driver_of_it.absent = state->name.c_str();
  use_driver(&driver_of_it);
  use_cublaslt(&products);
}

AbsentDevice::~AbsentDevice() {
  use_driver(nullptr);
  use_cublaslt(nullptr);
  state.reset();
}

std::vector<std::string> AbsentDevice::known() {
  std::vector<std::string> names;
  for (const bool portable : {false, true}) {
    for (const ArchitectureFacts& facts : architecture_facts()) {
      Architecture one = Architecture::of_device(facts.major, facts.minor);
      if (portable) one = {facts.major, facts.minor, false, true};
      if (!refuses_architecture(one)) names.push_back(one.name());
    }
  }
  return names;
}

int AbsentDevice::dynamic_shared_bytes(std::size_t module) const {
  return module < state->dynamic_shared.size() ? state->dynamic_shared[module] : -1;
}

}  // namespace gnomon::cuda
