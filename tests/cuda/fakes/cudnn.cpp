// A library that says it is cuDNN: FAKE_VERSION, and with FAKE_WHOLE all the functions that are looked for.
#include <cstddef>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT std::size_t cudnnGetVersion() { return FAKE_VERSION; }

#define FAKE(name) \
  FAKE_EXPORT int name() { return 1; }
FAKE(cudnnGetErrorString)
FAKE(cudnnGetLastErrorString)
FAKE(cudnnCreate)
FAKE(cudnnDestroy)
FAKE(cudnnSetStream)
FAKE(cudnnBackendCreateDescriptor)
FAKE(cudnnBackendDestroyDescriptor)
FAKE(cudnnBackendFinalize)
FAKE(cudnnBackendSetAttribute)
FAKE(cudnnBackendGetAttribute)
#ifdef FAKE_WHOLE
FAKE(cudnnBackendExecute)
#endif
