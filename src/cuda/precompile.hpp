// `gnomon kernels`: fills the kernel cache with no device there, and shows what is in it.
#pragma once

#include "engine/device_kernels.hpp"

namespace gnomon::cuda {

KernelWishes precompile(const KernelWish& wish);
std::vector<KernelFile> kernel_files(const std::filesystem::path& cache);
KernelFilesRemoved remove_kernel_files(const std::filesystem::path& cache);

}  // namespace gnomon::cuda
