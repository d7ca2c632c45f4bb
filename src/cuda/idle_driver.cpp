#include "cuda/idle_driver.hpp"

namespace gnomon::cuda {
namespace {

int ordinal = 0;  // that all memory is taken to be of

}  // namespace

IdleDriver::IdleDriver(const Device& device) : idle_(driver()) {
  ordinal = device.ordinal();
  idle_.cuCtxPushCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  idle_.cuCtxPopCurrent = [](CUcontext*) { return CUDA_SUCCESS; };
  idle_.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
  idle_.cuPointerGetAttribute = [](void* data, CUpointer_attribute, CUdeviceptr) {
    *static_cast<int*>(data) = ordinal;
    return CUDA_SUCCESS;
  };
  idle_.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  idle_.cuStreamWaitEvent = [](CUstream, CUevent, unsigned) { return CUDA_SUCCESS; };
  idle_.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
  idle_.cuGraphExecKernelNodeSetParams = [](CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*) {
    return CUDA_SUCCESS;
  };
  idle_.cuLaunchKernelEx = [](const CUlaunchConfig*, CUfunction, void**, void**) { return CUDA_SUCCESS; };
  idle_.cuMemsetD8Async = [](CUdeviceptr, unsigned char, std::size_t, CUstream) { return CUDA_SUCCESS; };
  idle_.cuMemcpyDtoHAsync = [](void*, CUdeviceptr, std::size_t, CUstream) { return CUDA_SUCCESS; };  // the guard's flag
  idle_.cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
  idle_.cuGraphLaunch = [](CUgraphExec, CUstream) { return CUDA_SUCCESS; };
  before_ = use_driver(&idle_);
}

IdleDriver::~IdleDriver() { use_driver(before_); }

}  // namespace gnomon::cuda
