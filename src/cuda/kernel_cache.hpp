// Compiled kernels as files: one each, named by what it was made from. docs/cuda.md tells what that is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace gnomon::cuda {

struct CompiledKernel {
  std::string image;   // machine code (a cubin), or PTX for a portable architecture
  std::string symbol;  // the function's name in it
  std::string log;     // what the compiler said, its resource report included
  // What it was made from, for people: the file's name is what it is found by.
  std::string source, architecture, compiler;  // "norm.cuh: ...", "sm_90a", "NVRTC 13.0"
  bool from_disk = false;
};

// Where compiled kernels are kept: GNOMON_KERNEL_CACHE, else $XDG_CACHE_HOME/gnomon/kernels, else
// ~/.cache/gnomon/kernels; empty (memory only) when GNOMON_KERNEL_CACHE is set to nothing or no home is known.
std::filesystem::path default_kernel_cache();

class KernelCache {
 public:
  static constexpr const char* kFormat = "gnomon kernel 2\n";  // part of what a name is made from

  explicit KernelCache(std::filesystem::path folder) : folder_(std::move(folder)) {}
  bool enabled() const { return !folder_.empty(); }

  // Neither throws: what is unusable, missing or damaged is a miss, and warned of once.
  std::optional<CompiledKernel> read(const std::string& name) const;
  void write(const std::string& name, const CompiledKernel& kernel) const;

  struct File {
    std::filesystem::path path;
    std::uintmax_t bytes = 0;
    CompiledKernel kernel;  // without its image and log
    std::string unusable;   // why no process takes it: damaged, or written by another version of Gnomon
  };
  std::vector<File> list() const;  // by source and architecture; empty when the folder is not there
  // Removes all of them, usable or not, and what writers left that died; how many and how large they were. Environment
  // error when one cannot be removed.
  struct Removed {
    int files = 0;
    std::uintmax_t bytes = 0;
  };
  Removed clear() const;

 private:
  std::filesystem::path folder_;
};

}  // namespace gnomon::cuda
