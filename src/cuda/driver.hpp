// The driver API, taken from libcuda.so.1 when first needed.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>

namespace gnomon::cuda {

// cuda.h renames functions to the version that its structures belong to (cuMemAlloc is cuMemAlloc_v2): members have the
// renamed name, and a use of either name is renamed alike.
// clang-format off
#define GNOMON_CUDA_DRIVER(X)                                                                                          \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGetCount) X(cuDeviceGet)            \
  X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDeviceTotalMem) X(cuDevicePrimaryCtxRetain)                          \
  X(cuDevicePrimaryCtxRelease) X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxGetCurrent) X(cuCtxSynchronize)          \
  X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemcpyHtoDAsync)                  \
  X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemcpy2DAsync) X(cuMemsetD8Async) X(cuMemsetD16Async) X(cuMemsetD32Async)                \
  X(cuPointerGetAttribute) X(cuModuleLoadDataEx) X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncGetAttribute)       \
  X(cuFuncSetAttribute) X(cuLaunchKernelEx) X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuStreamCreate)          \
  X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamIsCapturing) X(cuStreamBeginCapture)       \
  X(cuStreamEndCapture) X(cuThreadExchangeStreamCaptureMode) X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord)      \
  X(cuEventSynchronize) X(cuEventQuery) X(cuGraphCreate) X(cuGraphInstantiate) X(cuGraphLaunch) X(cuGraphDestroy)     \
  X(cuGraphExecDestroy) X(cuGraphExecKernelNodeSetParams)
// clang-format on

struct Driver {
#define GNOMON_CUDA_DECLARE(name) decltype(&::name) name = nullptr;
  GNOMON_CUDA_DRIVER(GNOMON_CUDA_DECLARE)
#undef GNOMON_CUDA_DECLARE
  decltype(&::cuFuncGetParamInfo) cuFuncGetParamInfo = nullptr;  // null before driver 12.4
  // cuda.h of CUDA 13 declares another form of it; this one is in every driver.
  CUresult (*cuStreamGetCaptureInfo_v2)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                                        std::size_t*) = nullptr;
  // Conditional nodes; null before driver 12.4. cuda.h of CUDA 13 declares another cuGraphAddNode.
  decltype(&::cuGraphConditionalHandleCreate) cuGraphConditionalHandleCreate = nullptr;
  decltype(&::cuStreamBeginCaptureToGraph) cuStreamBeginCaptureToGraph = nullptr;
  CUresult (*cuGraphAddNode_v1)(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraphNodeParams*) = nullptr;
  bool has_conditional_nodes() const { return cuGraphAddNode_v1 != nullptr; }
  int version = 0;  // 12040: CUDA 12.4
  // Of a device that is not there (absent_device.hpp): what it runs, "sm_90a". Null: NVIDIA's own driver. Libraries
  // that find the driver by themselves must not be asked while it is set.
  const char* absent = nullptr;
};

// Initialised. Environment error in one line when there is no driver, no device, or the driver is older than 12.0.
const Driver& driver();
// Another in its place, for the whole process; null: NVIDIA's again. Not while a thread is inside this backend. What
// was in its place before.
const Driver* use_driver(const Driver* other);
// What the driver in its place takes its device for (absent_device.hpp), "sm_90a"; null: NVIDIA's own driver. Libraries
// that find the driver by themselves must not be asked for anything while it is set.
const char* absent_architecture();

// Environment error "cuLaunchKernelEx failed: CUDA_ERROR_INVALID_VALUE (invalid argument)"; std::bad_alloc when the
// device's memory is used up, which is how the planner hears of it from every backend.
void check(CUresult result, const char* call);

}  // namespace gnomon::cuda
