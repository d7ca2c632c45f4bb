// Launches of kernels/activation.cuh.
#pragma once

#include "core/dtype.hpp"
#include "core/stack_config.hpp"
#include "cuda/kernel.hpp"
#include "cuda/kernels/params.cuh"

namespace gnomon::cuda {

// The device code's name of the function.
const char* function_name(Activation activation);

// Contiguous rows, in place or not; a bias is said by its pointer in the launch's params.
Launch<kernels::Activate> activate(KernelLibrary& library, DType dtype, Activation activation, std::int64_t rows,
                                   std::int64_t width);

}  // namespace gnomon::cuda
