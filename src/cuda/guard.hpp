// Launches of kernels/guard.cuh.
#pragma once

#include "core/dtype.hpp"
#include "cuda/kernel.hpp"
#include "cuda/kernels/params.cuh"

namespace gnomon::cuda {

Launch<kernels::Decide> decide(KernelLibrary& library);
Launch<kernels::ReloadRows> reload_rows(KernelLibrary& library, DType dtype, std::int64_t rows, std::int64_t width);
Launch<kernels::CommitRows> commit_rows(KernelLibrary& library, DType dtype, std::int64_t rows, std::int64_t width,
                                        int vec);

}  // namespace gnomon::cuda
