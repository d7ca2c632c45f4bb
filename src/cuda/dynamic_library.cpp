#include "cuda/dynamic_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "core/error.hpp"

namespace gnomon::cuda {
namespace fs = std::filesystem;
namespace {

fs::path path_of(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map) return {};
  return map->l_name;
}

void add(std::vector<fs::path>& folders, const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return;
  if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(folder);
}

// PyPI's packages: nvidia/cu13/lib holds all of CUDA 13, nvidia/<part>/lib one part of CUDA 12 each.
void add_pypi(std::vector<fs::path>& folders, const fs::path& nvidia) {
  for (const char* part : {"cu13", "cublas", "cuda_nvrtc", "cudnn"}) add(folders, nvidia / part / "lib");
}

int add_neighbours(dl_phdr_info* library, std::size_t, void* data) {
  auto& folders = *static_cast<std::vector<fs::path>*>(data);
  const fs::path path = library->dlpi_name;
  const std::string name = path.filename().string();
  for (const char* known : {"libcublasLt.so", "libcudart.so", "libnvrtc.so", "libcudnn.so"}) {
    if (!name.starts_with(known)) continue;
    add(folders, path.parent_path());
    add_pypi(folders, path.parent_path().parent_path().parent_path());
  }
  return 0;
}

}  // namespace

DynamicLibrary::DynamicLibrary(void* handle, std::string name)
    : handle_(handle), name_(std::move(name)), path_(path_of(handle)) {}

DynamicLibrary DynamicLibrary::open(std::string_view what, std::span<const std::string> names,
                                    std::span<const fs::path> folders) {
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD)) return {handle, name};
  }
  std::string broken;  // one that is there and does not open says why
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return {handle, name};
    for (const fs::path& folder : folders) {
      const fs::path path = folder / name;
      std::error_code ignored;
      if (!fs::exists(path, ignored)) continue;
      if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return {handle, name};
      if (const char* why = dlerror()) broken = why;
    }
  }
  std::string tried;
  for (const std::string& name : names) tried += (tried.empty() ? "" : ", ") + name;
  std::string places = "the loader's folders";
  for (const fs::path& folder : folders) places += ", " + folder.string();
  throw_environment("{} was not found: tried {} in {}{}{}; install it, or name its folder in GNOMON_CUDA_LIBRARIES",
                    what, tried, places, broken.empty() ? "" : "; ", broken);
}

void* DynamicLibrary::find(const char* symbol) const { return dlsym(handle_, symbol); }

void* DynamicLibrary::require(const char* symbol) const {
  if (void* function = find(symbol)) return function;
  throw_environment("{} ({}) has no {}: it is older than Gnomon needs", name_, path_.string(), symbol);
}

std::vector<fs::path> cuda_library_folders() {
  std::vector<fs::path> folders;
  if (const char* own = std::getenv("GNOMON_CUDA_LIBRARIES")) {
    std::istringstream list(own);
    for (std::string folder; std::getline(list, folder, ':');) add(folders, folder);
  }
  dl_iterate_phdr(add_neighbours, &folders);
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable)) add(folders, fs::path(root) / "lib64");
  }
  add(folders, "/usr/local/cuda/lib64");
  if (const char* environment = std::getenv("VIRTUAL_ENV")) {
    std::error_code ignored;
    for (const auto& python : fs::directory_iterator(fs::path(environment) / "lib", ignored))
      add_pypi(folders, python.path() / "site-packages" / "nvidia");
  }
  return folders;
}

}  // namespace gnomon::cuda
