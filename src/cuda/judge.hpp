// The contract judged on the device: the verdict that core/contract.cpp gives, to the bit.
#pragma once

#include "core/contract.hpp"
#include "cuda/kernel.hpp"
#include "cuda/kernels/params.cuh"

namespace gnomon::cuda {

// Both tensors in device memory, any strides. Waits for the stream. `scratch`: device memory of sizeof(Comparison).
Verdict compare(KernelLibrary& library, CUstream stream, const ConstTensorView& u, const ConstTensorView& r,
                const Contract& contract, void* scratch);

// Fills words with a pattern; and counts those that no longer hold it (waits for the stream; 8 bytes of scratch).
void fill_pattern(CUstream stream, void* words, std::int64_t n, std::uint32_t pattern);
std::int64_t changed_words(KernelLibrary& library, CUstream stream, const void* words, std::int64_t n,
                           std::uint32_t pattern, void* scratch);

}  // namespace gnomon::cuda
