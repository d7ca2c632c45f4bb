// The emulator itself: tensor-core products of warps and warpgroups, right and with one fault each, and fp16
// arithmetic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cuda/emulated/find_faults.hpp"
#include "cuda/emulator/emulate.hpp"
#include "emulated/bulk_copy.cuh"
#include "emulated/memory.cuh"
#include "emulated/wgmma.cuh"

namespace gnomon::kernels {

// C[64][kN] = A[64][kK] * B[kN][kK], or B[kK][kN] in panels of as many columns as a row of the operand has.
enum class ProductFault { none, unpublished, no_begin, no_wait, reused, touched };
template <int kN, int kK, int kRowBytes, bool kTransposed, bool kRegisters, ProductFault kFault>
__global__ void product(const f16* a, const f16* b, float* c) {
  constexpr int kColumns = kRowBytes / 2;  // of a panel
  const u32 at_a = dynamic_shared(), at_b = at_a + 64 * kK * 2;
  const auto put = [&](u32 at, int row, int column, f16 first, f16 second) {
    store_shared(at + swizzle<kRowBytes>(row * kRowBytes + column * 2), u32{first.bits} | u32{second.bits} << 16);
  };
  for (int i = threadIdx.x * 2; i < 64 * kK && !kRegisters; i += 256) {
    const int row = i / kK, k = i % kK;
    put(at_a + k / kColumns * (64 * kRowBytes), row, k % kColumns, a[i], a[i + 1]);
  }
  for (int i = threadIdx.x * 2; i < kN * kK; i += 256) {
    constexpr int kWide = kTransposed ? kN : kK, kHigh = kTransposed ? kK : kN;
    const int row = i / kWide, column = i % kWide;
    put(at_b + column / kColumns * (kHigh * kRowBytes), row, column % kColumns, b[i], b[i + 1]);
  }
  if (kFault != ProductFault::unpublished) publish_shared_writes();
  __syncthreads();
  float d[kN / 2];
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
  if (kFault != ProductFault::no_begin) wgmma::begin();
  for (int k = 0; k < kK; k += 16) {
    const u64 operand_b = kTransposed
                              ? further(operand<kRowBytes>(at_b, kK * kRowBytes), k * kRowBytes)
                              : further(operand<kRowBytes>(at_b), k / kColumns * (kN * kRowBytes) + k % kColumns * 2);
    if constexpr (kRegisters) {
      u32 fragment[4];
      for (int r = 0; r < 4; ++r) {
        const f16* from = a + (row + r % 2 * 8) * kK + k + pair + r / 2 * 8;
        fragment[r] = u32{from[0].bits} | u32{from[1].bits} << 16;
      }
      if (k == 0) {
        wgmma::multiply<false, kTransposed>(d, fragment, operand_b);
      } else {
        wgmma::multiply<true, kTransposed>(d, fragment, operand_b);
      }
    } else {
      static_assert(!kTransposed);
      const u64 operand_a = further(operand<kRowBytes>(at_a), k / kColumns * (64 * kRowBytes) + k % kColumns * 2);
      if (k == 0) {
        wgmma::multiply_shared<false>(d, operand_a, operand_b);
      } else {
        wgmma::multiply_shared<true>(d, operand_a, operand_b);
      }
    }
  }
  wgmma::commit();
  if (kFault == ProductFault::reused) {
    __syncthreads();
    store_shared(at_b + 4 * threadIdx.x, 0x7e007e00u);
    publish_shared_writes();
  }
  if (kFault == ProductFault::touched) d[3] += 1;
  if (kFault != ProductFault::no_wait) wgmma::wait<0>();
  for (int i = 0; i < kN / 2; ++i) {
    c[(row + i % 4 / 2 * 8) * kN + i / 4 * 8 + pair + i % 2] = d[i];
  }
  wgmma::wait<0>();
}

template <typename T>
__global__ void warp_product(const T* a, const T* b, float* d) {  // [16][16] times [16][8]
  extern __shared__ __align__(1024) unsigned char shared[];
  T* const tile = reinterpret_cast<T*>(shared);  // A, then B [k][n] in rows of 16
  for (int i = threadIdx.x; i < 256; i += 32) tile[i] = a[i];
  for (int i = threadIdx.x; i < 256; i += 32) tile[256 + i] = b[i / 16 * 8 + i % 8];
  __syncwarp();
  const u32 place = threadIdx.x % 16 * 16 + threadIdx.x / 16 * 8;
  u32 fragment[4], columns[4];
  load_matrices(fragment, shared_address(tile + place));
  load_matrices_transposed(columns, shared_address(tile + 256 + place));
  store_matrices(shared_address(tile + 512 + place), fragment);
  __syncwarp();
  load_matrices(fragment, shared_address(tile + 512 + place));
  float sums[4] = {};
  mma_16x8x16<T>(sums, fragment, columns[0], columns[1]);
  for (int i = 0; i < 4; ++i) d[(threadIdx.x / 4 + i / 2 * 8) * 8 + threadIdx.x % 4 * 2 + i % 2] = sums[i];
}

}  // namespace gnomon::kernels

namespace gnomon::test {
namespace {

using emulator::emulate;
using kernels::ProductFault;

std::vector<kernels::f16> random_halves(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<kernels::f16> values(n);
  for (kernels::f16& v : values) v.bits = float_to_f16(normal(rng));
  return values;
}

template <int kN, int kK, int kRowBytes, bool kTransposed, bool kRegisters, ProductFault kFault = ProductFault::none>
bool product_right(std::uint64_t seed) {
  const auto a = random_halves(64 * kK, seed), b = random_halves(kN * kK, seed + 1000);
  std::vector<float> c(64 * kN, NAN);
  emulate(&kernels::product<kN, kK, kRowBytes, kTransposed, kRegisters, kFault>,
          {.threads = 128, .dynamic_shared_bytes = (64 + kN) * kK * 2}, seed, a.data(), b.data(), c.data());
  for (int m = 0; m < 64; ++m) {
    for (int n = 0; n < kN; ++n) {
      double sum = 0;
      for (int k = 0; k < kK; ++k) {
        sum += double{f16_to_float(a[static_cast<std::size_t>(m * kK + k)].bits)} *
               double{f16_to_float(b[static_cast<std::size_t>(kTransposed ? k * kN + n : n * kK + k)].bits)};
      }
      if (!(std::fabs(c[static_cast<std::size_t>(m * kN + n)] - sum) <= 1e-4)) return false;
    }
  }
  return true;
}

TEST(EmulatorProducts, WarpgroupProductsOfEveryLayout) {
  EXPECT_EQ(wrong_runs(&product_right<128, 64, 128, false, true>), 0);
  EXPECT_EQ(wrong_runs(&product_right<112, 128, 128, false, false>), 0);
  EXPECT_EQ(wrong_runs(&product_right<16, 32, 64, false, false>), 0);
  EXPECT_EQ(wrong_runs(&product_right<48, 48, 32, false, true>), 0);
  EXPECT_EQ(wrong_runs(&product_right<64, 48, 128, true, true>), 0);
  EXPECT_EQ(wrong_runs(&product_right<128, 32, 128, true, true>), 0);
  EXPECT_EQ(wrong_runs(&product_right<96, 16, 64, true, true>), 0);
  EXPECT_EQ(wrong_runs(&product_right<16, 64, 32, true, true>), 0);
}

TEST(EmulatorProducts, FaultsOfWarpgroupProducts) {
  EXPECT_EQ(wrong_runs(&product_right<32, 64, 128, false, false, ProductFault::unpublished>), kSeeds);
  EXPECT_EQ(wrong_runs(&product_right<32, 64, 128, false, false, ProductFault::no_wait>), kSeeds);
  EXPECT_GT(wrong_runs(&product_right<32, 64, 128, false, false, ProductFault::reused>), kSeeds / 4);
  EXPECT_THAT(error_of(&product_right<32, 64, 128, false, false, ProductFault::no_begin>, 1),
              testing::HasSubstr("without a fence"));
  EXPECT_THAT(error_of(&product_right<32, 64, 128, false, false, ProductFault::touched>, 1),
              testing::HasSubstr("accumulator 3 of 16 was written"));
}

TEST(EmulatorProducts, FragmentsOfAWarp) {
  const auto right = []<typename T>(T, std::uint64_t seed) {
    std::mt19937_64 rng(seed);
    std::normal_distribution<float> normal;
    T a[256], b[128];
    for (T& v : a) v = kernels::from_float<T>(normal(rng));
    for (T& v : b) v = kernels::from_float<T>(normal(rng));
    float d[128];
    const T *const pa = a, *const pb = b;
    emulate(&kernels::warp_product<T>, {.threads = 32, .dynamic_shared_bytes = 1536}, seed, pa, pb, &d[0]);
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 8; ++n) {
        double sum = 0;
        for (int k = 0; k < 16; ++k) sum += double{kernels::to_float(a[m * 16 + k])} * kernels::to_float(b[k * 8 + n]);
        if (!(std::fabs(d[m * 8 + n] - sum) <= 1e-5)) return false;
      }
    }
    return true;
  };
  EXPECT_EQ(wrong_runs([&](std::uint64_t seed) { return right(kernels::f16{}, seed); }), 0);
  EXPECT_EQ(wrong_runs([&](std::uint64_t seed) { return right(kernels::bf16{}, seed); }), 0);
}

// Of a number in units of 2^-48, the nearest fp16, even where two are.
__extension__ using Wide = __int128;
std::uint16_t nearest_f16(Wide exact, bool negative_zero) {
  const Wide size = exact < 0 ? -exact : exact;
  const std::uint16_t sign = exact < 0 || (exact == 0 && negative_zero) ? 0x8000 : 0;
  int unit = 24;  // in bits: 2^-24, the least
  while (size >> unit >= 2048) ++unit;
  Wide units = size >> unit;
  const Wide rest = size - (units << unit), half = Wide{1} << (unit - 1);
  if (rest > half || (rest == half && units % 2 == 1)) ++units;
  const Wide bits = units + (Wide{unit - 24} << 10);
  return static_cast<std::uint16_t>(sign | (bits > 0x7c00 ? 0x7c00 : static_cast<std::uint16_t>(bits)));
}

TEST(EmulatorProducts, HalfArithmeticRoundsOnce) {
  std::mt19937_64 rng(5);
  const auto exact = [](std::uint16_t v) { return static_cast<Wide>(std::ldexp(f16_to_float(v), 24)); };
  for (int i = 0; i < 300'000; ++i) {
    std::uint16_t v[3];
    for (std::uint16_t& x : v) x = static_cast<std::uint16_t>(rng());
    if (i % 2) v[2] = static_cast<std::uint16_t>((v[2] & 0x83ff) | 0x0400);  // far below the product: ties decide
    bool finite = true;
    for (const std::uint16_t x : v) finite &= (x & 0x7c00) != 0x7c00;
    if (!finite) continue;
    const Wide product = exact(v[0]) * exact(v[1]), sum = product + exact(v[2]) * (Wide{1} << 24);
    if (sum == 0) continue;
    ASSERT_EQ(emulator::fma_f16(v[0], v[1], v[2]), nearest_f16(sum, false)) << v[0] << " " << v[1] << " " << v[2];
    ASSERT_EQ(emulator::fma_f16(v[0], v[1], 0x8000), nearest_f16(product, ((v[0] ^ v[1]) & 0x8000) != 0));
  }
  EXPECT_EQ(emulator::larger_f16(0x7e00, 0, 0), 0x7fff);
  EXPECT_EQ(emulator::fma_saturated_f16(0x7e00, 0, 0), 0);
}

}  // namespace
}  // namespace gnomon::test
