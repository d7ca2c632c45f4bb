// Devices by name. The CPU is built in, the CUDA backend is a plugin.
#include "core/error.hpp"
#include "cpu/cpu_backend.hpp"
#include "engine/device_plugin.hpp"
#include "engine/engine.hpp"

namespace gnomon {

std::unique_ptr<Backend> make_backend(std::string_view device, std::shared_ptr<const Weights> weights,
                                      const Constraints& constraints) {
  if (device == "cpu") return cpu::make_cpu_backend(std::move(weights), constraints);
  const int ordinal = cuda_ordinal(device);
  try {
    return cuda_plugin().make_backend(ordinal, std::move(weights), constraints);
  } catch (const Error& error) {  // a missing plugin, driver or library does not know which device was asked for
    const std::string reason = error.what();
    if (reason.find(device) != std::string::npos) throw;
    throw Error(error.kind(), fmt::format("device '{}': {}", device, reason));
  }
}

}  // namespace gnomon
