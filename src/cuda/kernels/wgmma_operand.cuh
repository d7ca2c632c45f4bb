// How matrices lie in shared memory for wgmma, and how they are described to it.
#pragma once

#include "half.cuh"

namespace gnomon::kernels {

// Rows of an operand in shared memory are 32, 64 or 128 bytes, and eight rows form an atom whose 16-byte chunks are
// swizzled: the chunk number is xored with the row number (in units of 128 bytes), so that eight rows of one chunk meet
// no bank twice.
template <int kRowBytes>
__device__ __forceinline__ u32 swizzle(u32 offset) {
  static_assert(kRowBytes == 32 || kRowBytes == 64 || kRowBytes == 128);
  return offset ^ ((offset >> 3) & (kRowBytes - 16));
}

// Describes an operand to the hardware: a column of atoms, each 8 rows, aligned to its own size. The rows are the N of
// the product (B stored [N][K]) or its K (B stored [K][N], kTransposed in multiply); there a row longer than an atom
// goes on `next_columns` bytes further.
template <int kRowBytes>
__device__ __forceinline__ u64 operand(u32 address, u32 next_columns = 16) {
  constexpr u64 kLayout = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;
  constexpr u64 kAtom = 8 * kRowBytes;
  return (kLayout << 62) | ((kAtom >> 4) << 32) | (u64{next_columns >> 4} << 16) | ((address & 0x3ffff) >> 4);
}

// The operand that starts some bytes further, whose atoms lie alike.
__device__ __forceinline__ u64 further(u64 operand, u32 bytes) { return operand + (bytes >> 4); }

}  // namespace gnomon::kernels
