// Warpgroup products. Each warp computes its 16 rows of D when all its lanes have issued the product, at that moment or
// any later one until they wait. Until then the accumulators are kept here, and the thread's array holds NaN.
#pragma once

#include <cstdint>
#include <vector>

namespace gnomon::emulator {

struct Cta;

void wgmma_fence();
void wgmma_commit();
void wgmma_wait(std::uint64_t pending);

struct Operands {
  const std::uint32_t* a_registers = nullptr;  // null: A is in shared memory
  std::uint64_t a = 0, b = 0;                  // descriptors
  bool a_transposed = false, b_transposed = false;
  bool accumulate = true;
};
// D[64][n], of this thread n / 2 floats.
void wgmma_multiply(float* d, int n, const Operands& operands);

// A thread's part of a D that products are at work on.
struct Accumulators {
  float* d;
  std::vector<float> values;
  std::uint64_t last_product = 0;  // number of the last one that works on it
};

struct Product {
  Operands operands;
  int n = 0;
  std::uint32_t lanes = 0;  // that have issued it
  std::uint32_t a[32][4] = {};
  Accumulators* d[32] = {};
};

// A in shared memory, once it has been read for all four warps: which of them reads whose rows is not said.
struct SharedOperand {
  float rows[64][16];
  int warps = 0;  // that have used it
};

void check_finished_products(Cta& cta);

}  // namespace gnomon::emulator
