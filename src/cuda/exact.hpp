// The fp32 answer of a guarded pass in one launch (kernels/exact.cuh), for stacks and batches that are small enough
// that a block to a sequence is no slower than the reference by more than a few milliseconds.
#pragma once

#include "core/dtype.hpp"
#include "cuda/device_weights.hpp"
#include "cuda/kernel.hpp"
#include "cuda/kernels/params.cuh"
#include "cuda/resident.hpp"

namespace gnomon::cuda {

bool answers_in_one_launch(const ResidentSpec& spec, const DeviceProperties& device);
std::size_t exact_scratch_bytes(const ResidentSpec& spec, const DeviceProperties& device);

// All but the call's tensors with their strides and mask, the scratch, and the flag's words.
Launch<kernels::ExactStack> exact_stack(KernelLibrary& library, const ResidentSpec& spec, DType border,
                                        const WeightsLayout& layout, const WeightsCopy& fp32);

}  // namespace gnomon::cuda
