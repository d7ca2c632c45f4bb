// In place of src/cuda/kernels/wgmma.cuh. Descriptors are the real ones; wgmma.cpp decodes them.
#pragma once

#include "cuda/emulator/wgmma.hpp"
#include "wgmma_operand.cuh"

namespace gnomon::kernels {

template <int kRegisters>
void take_registers() {}
template <int kRegisters>
void give_registers() {}

namespace wgmma {

inline void begin() { emulator::wgmma_fence(); }
inline void commit() { emulator::wgmma_commit(); }
template <int kPending>
void wait() {
  emulator::wgmma_wait(kPending);
}

template <int kSize>
void settle(float (&)[kSize]) {}
template <int kSize>
void settle(u32*) {}

template <bool kAccumulate, bool kTransposed, bool kSame = false, int kHalf>
void multiply(float (&d)[kHalf], const u32* a, u64 b) {
  emulator::wgmma_multiply(d, 2 * kHalf,
                           {.a_registers = a, .b = b, .b_transposed = kTransposed, .accumulate = kAccumulate});
}
template <bool kAccumulate, int kHalf>
void multiply_shared(float (&d)[kHalf], u64 a, u64 b) {
  emulator::wgmma_multiply(d, 2 * kHalf, {.a = a, .b = b, .accumulate = kAccumulate});
}

}  // namespace wgmma
}  // namespace gnomon::kernels
