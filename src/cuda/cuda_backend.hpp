// The CUDA backend: the stack on one device.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "core/weights.hpp"
#include "plan/backend.hpp"

namespace gnomon::cuda {

class Compiler;

// Environment error in one line when the driver, the device or a library is missing.
std::unique_ptr<Backend> make_cuda_backend(int ordinal, std::shared_ptr<const Weights> weights,
                                           const Constraints& constraints);
// Its kernels from that compiler.
std::unique_ptr<Backend> make_cuda_backend(int ordinal, std::shared_ptr<const Weights> weights,
                                           const Constraints& constraints, std::shared_ptr<Compiler> compiler);

}  // namespace gnomon::cuda
