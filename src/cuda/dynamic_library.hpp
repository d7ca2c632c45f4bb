// Shared libraries that are opened when first needed. CUDA's are never linked: a machine without them runs the CPU.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gnomon::cuda {

// Stays open for the life of the process: functions of it may be running in another thread at exit.
class DynamicLibrary {
 public:
  // The first of `names` that is in the process already (the one that a framework brought along); else the first that
  // opens: by the loader's own rules, then in each of `folders`. Environment error that lists what was tried.
  static DynamicLibrary open(std::string_view what, std::span<const std::string> names,
                             std::span<const std::filesystem::path> folders);

  void* find(const char* symbol) const;  // null when absent
  template <typename Function>
  void bind(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(require(symbol));
  }
  std::filesystem::path path() const { return path_; }

 private:
  DynamicLibrary(void* handle, std::string name);
  void* require(const char* symbol) const;  // environment error when absent

  void* handle_;
  std::string name_;
  std::filesystem::path path_;
};

// Where NVIDIA's libraries lie: GNOMON_CUDA_LIBRARIES (folders, ':' between them), beside those that are in the process
// (PyPI's packages have one folder, or one each), the toolkit (CUDA_HOME, CUDA_PATH, /usr/local/cuda), VIRTUAL_ENV.
std::vector<std::filesystem::path> cuda_library_folders();

}  // namespace gnomon::cuda
