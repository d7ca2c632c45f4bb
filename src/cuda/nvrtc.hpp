// NVIDIA's run-time compiler, taken from libnvrtc when first needed. The few functions used are declared here, so that
// building Gnomon takes no header of it.
#pragma once

#include <cstddef>
#include <string>

namespace gnomon::cuda {

struct NvrtcProgram;  // opaque

struct Nvrtc {
  int (*version)(int* major, int* minor) = nullptr;
  const char* (*error_string)(int result) = nullptr;
  int (*supported_arch_count)(int* count) = nullptr;
  int (*supported_archs)(int* archs) = nullptr;
  int (*create)(NvrtcProgram** program, const char* source, const char* name, int headers, const char* const* texts,
                const char* const* names) = nullptr;
  int (*destroy)(NvrtcProgram** program) = nullptr;
  int (*add_name)(NvrtcProgram* program, const char* expression) = nullptr;
  int (*compile)(NvrtcProgram* program, int count, const char* const* options) = nullptr;
  int (*log_size)(NvrtcProgram* program, std::size_t* size) = nullptr;
  int (*log)(NvrtcProgram* program, char* text) = nullptr;
  int (*cubin_size)(NvrtcProgram* program, std::size_t* size) = nullptr;
  int (*cubin)(NvrtcProgram* program, char* image) = nullptr;
  int (*ptx_size)(NvrtcProgram* program, std::size_t* size) = nullptr;
  int (*ptx)(NvrtcProgram* program, char* text) = nullptr;
  int (*lowered_name)(NvrtcProgram* program, const char* expression, const char** symbol) = nullptr;

  std::string version_text;  // "13.0"
  std::string path;
  int newest_arch = 0;  // 120: compute capability 12.0
};

const Nvrtc& nvrtc();  // environment error when there is none

}  // namespace gnomon::cuda
