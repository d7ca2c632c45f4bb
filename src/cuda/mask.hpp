// Launches of kernels/mask.cuh, and the device memory that a classified mask takes.
#pragma once

#include "cuda/kernel.hpp"
#include "cuda/kernels/params.cuh"

namespace gnomon::cuda {

// One block of device memory; `state` must be zero before the first call and is zero again after each.
struct ClassifiedMask {
  kernels::SequenceKeys* keys = nullptr;
  kernels::u32* bitmap = nullptr;
  kernels::u32* state = nullptr;  // 2 words
  kernels::u32* kind = nullptr;   // a kernels::MaskClass

  static std::int64_t words(std::int64_t seq) { return (seq + 31) / 32; }
  static std::int64_t bytes(std::int64_t batch, std::int64_t seq);
  static ClassifiedMask place(void* memory, std::int64_t batch, std::int64_t seq);  // 16-byte aligned memory
};

// The mask's address and strides go into the launch's params (mask_bytes of rows.hpp).
Launch<kernels::ClassifyMask> classify_mask(KernelLibrary& library, std::int64_t batch, std::int64_t seq,
                                            const ClassifiedMask& to);

}  // namespace gnomon::cuda
