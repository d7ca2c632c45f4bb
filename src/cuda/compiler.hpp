// Compiles kernels for an architecture, with no device needed, and keeps the results in memory and on disk.
#pragma once

#include <atomic>
#include <deque>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda/architecture.hpp"
#include "cuda/kernel_cache.hpp"
#include "cuda/kernel_sources.hpp"

namespace gnomon::cuda {

// One kernel: a function of a file, with its template arguments.
struct KernelSource {
  std::string file;                  // "attention.cuh"
  std::string expression;            // "attention<64, true, half_t>", as it would be written at the file's end
  std::vector<std::string> defines;  // "TILE=64"

  std::string to_string() const;  // "attention.cuh: attention<64, true, half_t> TILE=64"
};

class Compiler {
 public:
  // The sources are kept by the caller: they are those in the binary, except in tests.
  explicit Compiler(std::filesystem::path cache = default_kernel_cache(),
                    std::span<const SourceFile> sources = kernel_sources());
  virtual ~Compiler();  // waits for the kernels that are being compiled, and for no others

  // From memory, from disk, or compiled now. Safe from several threads and processes. Internal error with the
  // compiler's log when the kernel does not compile; an unusable cache is a warning, never an error.
  virtual std::shared_ptr<const CompiledKernel> get(const KernelSource& source, const Architecture& architecture);

  // Compiles them in the background, each once, those of the last call first; who asks for one meanwhile waits for it,
  // or compiles it himself when nobody has begun. Failures are told to who asks.
  // A class with another get() has another ahead() too: helpers may outlive what it added.
  virtual void ahead(std::vector<KernelSource> sources, const Architecture& architecture);

  // The name that it is kept under: of the compiler's version, the options and every line that is included.
  std::string key(const KernelSource& source, const Architecture& architecture) const;

  const KernelCache& cache() const { return cache_; }
  int compilations() const { return compilations_; }  // those not answered by a cache

 private:
  using Shared = std::shared_ptr<const CompiledKernel>;
  struct Job {
    KernelSource source;
    Architecture architecture;
  };
  struct Helper {
    std::shared_ptr<std::atomic<bool>> ended = std::make_shared<std::atomic<bool>>(false);
    std::jthread thread;
  };
  void help(const std::stop_token& stop);
  std::optional<Job> next_job();
  bool begun(const std::string& name);
  Shared make(const std::string& name, const KernelSource& source, const Architecture& architecture);
  CompiledKernel compile(const KernelSource& source, const Architecture& architecture) const;

  const KernelCache cache_;
  const std::span<const SourceFile> sources_;
  std::mutex mutex_;
  std::map<std::string, std::shared_future<Shared>> kernels_;
  std::atomic<int> compilations_{0};
  std::set<std::string> announced_;  // all that ever was among the jobs
  std::deque<Job> jobs_;
  std::size_t working_ = 0;  // helpers that may still take a job
  std::vector<Helper> helpers_;
};

}  // namespace gnomon::cuda
