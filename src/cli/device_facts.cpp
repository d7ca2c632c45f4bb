#include "cli/device_facts.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "core/error.hpp"
#include "core/memory.hpp"
#include "engine/device_plugin.hpp"

namespace gnomon::cli {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const DeviceDescription& device) {
  Json facts = {{"name", device.model},
                {"compute_capability", device.compute_capability},
                {"multiprocessors", device.multiprocessors},
                {"memory_bytes", device.memory_bytes}};
  const char* architecture = std::getenv("GNOMON_CUDA_ARCH");
  if (architecture && *architecture) facts["architecture"] = architecture;  // not the device's own
  return facts;
}

}  // namespace

Json cuda_facts() {
  Json info = {{"devices", Json::object()}};
  try {
    info["libraries"] = Json::object();
    for (const LibraryVersion& library : cuda_plugin().libraries())
      info["libraries"][library.name] =
          library.missing.empty() ? library.version : fmt::format("missing ({})", library.missing);
    for (const DeviceDescription& device : cuda_plugin().devices()) info["devices"][device.name] = json_of(device);
  } catch (const Error& error) {
    info["missing"] = error.what();
  }
  return info;
}

Json device_facts(const std::string& device) {
  const Json all = cuda_facts();
  return all["devices"].value(device, Json{{"name", device}});
}

std::string device_text(const Json& facts) {
  return fmt::format(
      "{}, compute capability {}, {} multiprocessors, {}{}", facts["name"].get<std::string>(),
      facts["compute_capability"].get<std::string>(), facts["multiprocessors"].get<int>(),
      format_bytes(facts["memory_bytes"].get<double>()),
      facts.contains("architecture") ? fmt::format(", kernels for {}", facts["architecture"].get<std::string>()) : "");
}

std::string versions_text(const Json& libraries) {
  std::string text;
  for (const auto& [name, version] : libraries.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, version.get<std::string>());
  return text;
}

}  // namespace gnomon::cli
