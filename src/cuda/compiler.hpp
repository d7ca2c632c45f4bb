// Compiles kernels for an architecture, with no device needed, and keeps the results in memory and on disk.
#pragma once

#include <atomic>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/architecture.hpp"
#include "cuda/kernel_sources.hpp"

namespace gnomon::cuda {

// One kernel: a function of a file, with its template arguments.
struct KernelSource {
  std::string file;                  // "attention.cuh"
  std::string expression;            // "attention<64, true, half_t>", as it would be written at the file's end
  std::vector<std::string> defines;  // "TILE=64"

  std::string to_string() const;  // "attention.cuh: attention<64, true, half_t> TILE=64"
};

struct CompiledKernel {
  std::string image;   // machine code (a cubin), or PTX for a portable architecture
  std::string symbol;  // the function's name in it
  std::string log;     // what the compiler said, its resource report included
};

// Where compiled kernels are kept: GNOMON_KERNEL_CACHE, else $XDG_CACHE_HOME/gnomon/kernels, else
// ~/.cache/gnomon/kernels; empty (memory only) when GNOMON_KERNEL_CACHE is set to nothing or no home is known.
std::filesystem::path default_kernel_cache();

class Compiler {
 public:
  // The sources are kept by the caller: they are those in the binary, except in tests.
  explicit Compiler(std::filesystem::path cache = default_kernel_cache(),
                    std::span<const SourceFile> sources = kernel_sources());

  // From memory, from disk, or compiled now. Safe from several threads and processes. Internal error with the
  // compiler's log when the kernel does not compile; an unusable cache is a warning, never an error.
  std::shared_ptr<const CompiledKernel> get(const KernelSource& source, const Architecture& architecture);

  // Compiles them in the background; who asks for one meanwhile waits for it. Failures are told to who asks.
  void ahead(std::vector<KernelSource> sources, const Architecture& architecture);

  int compilations() const { return compilations_; }  // those not answered by a cache

 private:
  using Shared = std::shared_ptr<const CompiledKernel>;
  Shared make(const std::string& name, const KernelSource& source, const Architecture& architecture);
  std::string key(const KernelSource& source, const Architecture& architecture) const;
  CompiledKernel compile(const KernelSource& source, const Architecture& architecture) const;
  std::optional<CompiledKernel> read(const std::filesystem::path& file) const;
  void write(const std::filesystem::path& file, const CompiledKernel& kernel) const;

  const std::filesystem::path cache_;
  const std::span<const SourceFile> sources_;
  std::mutex mutex_;
  std::map<std::string, std::shared_future<Shared>> kernels_;
  std::atomic<int> compilations_{0};
  std::vector<std::jthread> helpers_;
};

}  // namespace gnomon::cuda
