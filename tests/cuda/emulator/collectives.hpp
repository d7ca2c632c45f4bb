// What the lanes of a warp do together: shuffles, votes, and the tensor cores' fragments (mma, ldmatrix, stmatrix).
#pragma once

#include <cstdint>

#include "cuda/emulator/engine.hpp"

namespace gnomon::emulator {

// All lanes of `mask` come with an argument; the last one does `work` on all of them, then all go on. Lanes that have
// exited are not waited for. An error where lanes of one mask come for different things.
void meet(const char* what, std::uint32_t mask, void* argument, void (*work)(Meeting&));
void finish_meetings(Warp& warp);  // after a lane has exited

std::uint64_t shuffle(std::uint32_t mask, std::uint64_t value, int source_lane);
std::uint32_t ballot(std::uint32_t mask, bool value);
void sync_warp(std::uint32_t mask);

enum class Half { f16, bf16 };
// d[16][8] += a[16][16] * b[16][8], registers as PTX lays out the fragments of m16n8k16.
void mma_16x8x16(Half type, float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1);
// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
void load_matrices(std::uint32_t* registers, std::uint32_t address, bool transposed);
void store_matrices(std::uint32_t address, const std::uint32_t* registers, bool transposed);

}  // namespace gnomon::emulator
