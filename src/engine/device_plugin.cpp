#include "engine/device_plugin.hpp"

#include <dlfcn.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/error.hpp"

namespace gnomon {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFileName = "libgnomon-cuda.so";

fs::path own_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&cuda_ordinal), &info) || !info.dli_fname) return ".";
  std::error_code ignored;
  const fs::path own = fs::canonical(info.dli_fname, ignored);
  return (own.empty() ? fs::path(info.dli_fname) : own).parent_path();
}

fs::path find_plugin() {
  if (const char* own = std::getenv("GNOMON_CUDA_PLUGIN"); own && *own) return own;
  const fs::path folder = own_folder();
  for (const fs::path& place : {folder, folder / "../lib", folder / "../lib64", folder / GNOMON_PLUGIN_FOLDER}) {
    std::error_code ignored;
    if (fs::exists(place / kFileName, ignored)) return (place / kFileName).lexically_normal();
  }
  throw_environment(
      "there is no CUDA backend here: {} is not in {} (it is built where cuda.h is found; GNOMON_CUDA_PLUGIN names one "
      "elsewhere); device 'cpu' works",
      kFileName, folder.string());
}

const DevicePlugin* load() {
  const fs::path path = find_plugin();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw_environment("the CUDA backend does not load: {}; device 'cpu' works", dlerror());
  const auto build_id = reinterpret_cast<DevicePluginBuildId*>(dlsym(library, kDevicePluginBuildId));
  const auto entry = reinterpret_cast<DevicePluginEntry*>(dlsym(library, kDevicePluginEntry));
  if (!build_id || !entry) throw_environment("{} is no backend of Gnomon", path.string());
  if (std::strcmp(build_id(), device_plugin_build_id()) != 0) {
    throw_environment("{} is of another build of Gnomon: expected {}, got {}", path.string(), device_plugin_build_id(),
                      build_id());
  }
  const DevicePlugin* plugin = entry();
  plugin->connect_log(log::write);
  return plugin;
}

}  // namespace

const DevicePlugin& cuda_plugin() {
  static const DevicePlugin* const plugin = load();  // never unloaded; a failure is tried again
  return *plugin;
}

std::unique_ptr<DeviceMemory> make_device_memory(std::string_view device) {
  return device == "cpu" ? nullptr : cuda_plugin().make_memory(cuda_ordinal(device));
}

int cuda_ordinal(std::string_view device) {
  constexpr std::string_view prefix = "cuda:";
  int ordinal = -1;
  if (device.starts_with(prefix)) {
    const char* const end = device.data() + device.size();
    const auto [stop, error] = std::from_chars(device.data() + prefix.size(), end, ordinal);
    if (error == std::errc() && stop == end && ordinal >= 0) return ordinal;
  }
  throw_caller("device: expected 'cpu' or 'cuda:N', got '{}'", device);
}

}  // namespace gnomon
