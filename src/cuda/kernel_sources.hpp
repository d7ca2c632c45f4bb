// The text of src/cuda/kernels, carried inside the binary: a machine needs the driver and NVRTC, nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gnomon::cuda {

struct SourceFile {
  std::string_view name;  // "attention.cuh"
  std::string_view text;
};

std::span<const SourceFile> kernel_sources();
std::uint64_t kernel_sources_hash();  // of all files: part of the environment that stored plans belong to

// `file` and all that it includes, each once. Internal error when a file is not there.
std::string with_includes(std::span<const SourceFile> sources, std::string_view file);

}  // namespace gnomon::cuda
