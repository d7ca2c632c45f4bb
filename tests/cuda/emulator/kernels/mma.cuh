// In place of src/cuda/kernels/mma.cuh.
#pragma once

#include "cuda/emulator/copies.hpp"
#include "cuda/emulator/shared_memory.hpp"
#include "half.cuh"

namespace gnomon::kernels {

inline u32 shared_address(const void* p) { return emulator::shared_address_of(p); }

template <typename T>
void mma_16x8x16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  static_assert(same_type<T, f16> || same_type<T, bf16>);
  emulator::mma_16x8x16(same_type<T, f16> ? emulator::Half::f16 : emulator::Half::bf16, d, a, b0, b1);
}

inline void load_matrices(u32 (&r)[4], u32 address) { emulator::load_matrices(r, address, false); }
inline void load_matrices_transposed(u32 (&r)[4], u32 address) { emulator::load_matrices(r, address, true); }
inline void store_matrices(u32 address, const u32* a) { emulator::store_matrices(address, a, false); }
inline void store_matrices_transposed(u32 address, const u32* a) { emulator::store_matrices(address, a, true); }

template <int kBytes>
void copy_async(u32 to, const void* from, bool there) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  emulator::copy_async(to, from, kBytes, there);
}
inline void commit_copies() { emulator::commit_copies(); }
template <int kPending>
void wait_copies() {
  emulator::wait_copies(kPending);
}

// Results and operands below the normal range are zero.
inline float exp2_fast(float x) {
  const float r = std::exp2(std::fabs(x) < 0x1p-126f ? 0.0f : x);
  return std::fabs(r) < 0x1p-126f ? 0.0f : r;
}

inline float square_root(float v) { return std::sqrt(v); }

}  // namespace gnomon::kernels
