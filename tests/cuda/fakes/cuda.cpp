// A driver for cuDNN that takes every call and does nothing, so that its engines compile with no device there. Its
// soname is the driver's own: what is loaded first is what the library finds.
#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

// The run-time compiler asks for more of a driver that answers this with success.
FAKE_EXPORT int cuInit(unsigned) { return 100; }
FAKE_EXPORT int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
FAKE_EXPORT int cuDeviceGetCount(int* count) { return *count = 0, 0; }
FAKE_EXPORT int cuLibraryLoadData(void** library, ...) { return *library = library, 0; }
FAKE_EXPORT int cuLibraryGetKernel(void** kernel, ...) { return *kernel = kernel, 0; }
FAKE_EXPORT int cuKernelGetFunction(void** function, ...) { return *function = function, 0; }
FAKE_EXPORT int cuKernelGetAttribute(int* value, ...) { return *value = 0, 0; }
FAKE_EXPORT int cuModuleLoadData(void** module, ...) { return *module = module, 0; }
FAKE_EXPORT int cuModuleLoadDataEx(void** module, ...) { return *module = module, 0; }
FAKE_EXPORT int cuModuleGetFunction(void** function, ...) { return *function = function, 0; }
FAKE_EXPORT int cuFuncGetAttribute(int* value, ...) { return *value = 0, 0; }

#define FAKE(name) \
  FAKE_EXPORT int name() { return 0; }
FAKE(cuCtxGetCurrent)
FAKE(cuCtxGetDevice)
FAKE(cuCtxGetLimit)
FAKE(cuCtxPopCurrent)
FAKE(cuCtxPushCurrent)
FAKE(cuDeviceGet)
FAKE(cuDeviceGetAttribute)
FAKE(cuDevicePrimaryCtxRelease)
FAKE(cuDevicePrimaryCtxReset)
FAKE(cuDevicePrimaryCtxRetain)
FAKE(cuFuncSetAttribute)
FAKE(cuGetErrorName)
FAKE(cuGetErrorString)
FAKE(cuKernelSetAttribute)
FAKE(cuLaunchCooperativeKernel)
FAKE(cuLaunchKernel)
FAKE(cuLaunchKernelEx)
FAKE(cuLibraryLoadFromFile)
FAKE(cuLibraryUnload)
FAKE(cuLinkAddData)
FAKE(cuLinkAddData_v2)
FAKE(cuLinkAddFile_v2)
FAKE(cuLinkComplete)
FAKE(cuLinkCreate)
FAKE(cuLinkCreate_v2)
FAKE(cuLinkDestroy)
FAKE(cuMemcpyDtoH_v2)
FAKE(cuModuleGetGlobal_v2)
FAKE(cuModuleLoadFatBinary)
FAKE(cuModuleUnload)
FAKE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
FAKE(cuOccupancyMaxPotentialClusterSize)
FAKE(cuStreamGetCtx)
FAKE(cuStreamSynchronize)
FAKE(cuTensorMapEncodeIm2col)
FAKE(cuTensorMapEncodeTiled)
