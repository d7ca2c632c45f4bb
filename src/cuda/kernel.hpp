// A kernel loaded on a device, and the one way to launch it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda/compiler.hpp"
#include "cuda/device.hpp"

namespace gnomon::cuda {

// Blocks are numbered in x alone, which reaches 2^31 - 1: y and z end at 65,535, and a batch does not.
struct LaunchShape {
  std::int64_t blocks = 1;
  int threads = 128;
  int dynamic_shared_bytes = 0;
  int cluster = 1;           // blocks of a thread-block cluster
  bool overlapping = false;  // may start before the kernel ahead of it ends: the code waits by griddepcontrol.wait
};

class Kernel {
 public:
  // Nothing happens before the first load() or launch.
  Kernel(KernelSource source, const Architecture& architecture, std::shared_ptr<Compiler> compiler);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // Compiles it, or waits for who does, and loads it: once, and the device must be current.
  void load() const;
  // Before the first launch that asks for as much.
  void allow_dynamic_shared(int bytes);

  // The device must be current. Arguments are passed as they are: their types must be those of the kernel's parameters,
  // and their number and sizes are compared with them.
  template <typename... Args>
  void launch(CUstream stream, const LaunchShape& shape, const Args&... args) const {
    static_assert((std::is_trivially_copyable_v<Args> && ...));
    constexpr std::size_t count = sizeof...(Args);
    const std::array<std::size_t, count> sizes = {sizeof(Args)...};
    std::array<void*, count> pointers = {const_cast<void*>(static_cast<const void*>(&args))...};
    launch_with(stream, shape, pointers.data(), sizes.data(), count);
  }

  // The same for a kernel that takes one struct.
  void launch_bytes(CUstream stream, const LaunchShape& shape, const void* params, std::size_t bytes) const {
    void* pointer = const_cast<void*>(params);
    launch_with(stream, shape, &pointer, &bytes, 1);
  }

  const std::string& name() const { return name_; }
  CUfunction function() const {
    load();
    return function_;
  }

 private:
  void launch_with(CUstream stream, const LaunchShape& shape, void** args, const std::size_t* sizes,
                   std::size_t count) const;
  void compare_parameters(const std::size_t* sizes, std::size_t count) const;
  void allow(int dynamic_shared_bytes) const;

  const KernelSource source_;
  const std::string name_;
  const Architecture architecture_;
  const std::shared_ptr<Compiler> compiler_;
  mutable std::mutex mutex_;
  mutable std::atomic<bool> loaded_{false};  // what follows is written before
  mutable CUmodule module_ = nullptr;
  mutable CUfunction function_ = nullptr;
  mutable std::vector<std::size_t> parameter_sizes_;
  mutable bool parameters_known_ = false;
  static constexpr int kAlwaysAllowed = 48 << 10;
  static constexpr int kPortableCluster = 8;  // blocks of a cluster; of a larger one a kernel must be allowed
  std::atomic<int> dynamic_shared_{kAlwaysAllowed};
};

// A launch with all that it needs. Launchers return these: a plan makes its launches once and runs them without a
// decision; the ones that read or write the caller's tensors get their addresses put into `params` at each call.
template <typename Params>
struct Launch {
  const Kernel* kernel = nullptr;
  LaunchShape shape;
  Params params{};

  void run(CUstream stream) const { kernel->launch(stream, shape, params); }
};

// The kernels of one device, each loaded once and kept. Safe from several threads. Who gets a kernel has it compiled in
// the background: a pass gets all of its kernels before it launches the first, so they are compiled side by side.
class KernelLibrary {
 public:
  KernelLibrary(const Device& device, std::shared_ptr<Compiler> compiler)
      : device_(device), compiler_(std::move(compiler)) {}
  // `dynamic_shared_bytes`: the most that launches of it will ask for.
  const Kernel& get(const KernelSource& source, int dynamic_shared_bytes = 0);
  Compiler& compiler() { return *compiler_; }
  const Device& device() const { return device_; }

 private:
  const Device& device_;
  std::shared_ptr<Compiler> compiler_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
};

}  // namespace gnomon::cuda
