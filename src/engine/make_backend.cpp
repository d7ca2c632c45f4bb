// Devices by name. The CPU is built in.
#include "core/error.hpp"
#include "cpu/cpu_backend.hpp"
#include "engine/engine.hpp"

namespace gnomon {

std::unique_ptr<Backend> make_backend(std::string_view device, std::shared_ptr<const Weights> weights,
                                      const Constraints& constraints) {
  if (device == "cpu") return cpu::make_cpu_backend(std::move(weights), constraints);
  if (device.starts_with("cuda:")) {
    throw_environment("device '{}': this build has no CUDA backend; use device 'cpu'", device);
  }
  throw_caller("device: expected 'cpu' or 'cuda:N', got '{}'", device);
}

}  // namespace gnomon
