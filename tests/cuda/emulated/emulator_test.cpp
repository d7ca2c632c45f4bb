// The emulator itself: small kernels that do right, whose results are known, and kernels with one fault each, which
// must be found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "core/error.hpp"
#include "cuda/emulator/emulate.hpp"
#include "emulated/bulk_copy.cuh"
#include "emulated/memory.cuh"
#include "emulated/reduce.cuh"
#include "emulated/wgmma.cuh"

namespace gnomon::kernels {

__device__ inline u32 dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char shared[];
  return shared_address(shared);
}

// Each thread's value becomes the sum of the block's.
template <bool kFaulty>
__global__ void sum_block(float* values) {
  __shared__ float slots[32];
  float& value = values[blockIdx.x * blockDim.x + threadIdx.x];
  const float sum = sum_lanes<32>(value);
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = sum;
  if (!kFaulty) __syncthreads();
  value = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) value += slots[w];
}

// Copies `rounds` pieces of 256 bytes through a ring of two stages in each CTA, filled for all CTAs by turns.
enum class RingFault { none, no_wait, early_release, no_fence, too_many_arrivals, no_release, too_many_bytes, leaves };
template <RingFault kFault>
__global__ void ring(const u32* from, u32* to, int rounds, u32 ctas) {
  constexpr u32 kBytes = 256;
  const u32 base = dynamic_shared(), full = base + 2 * kBytes, empty = full + 16;
  if (threadIdx.x == 0) {
    for (u32 s = 0; s < 2; ++s) {
      mbarrier::init(full + 8 * s, 1);
      mbarrier::init(empty + 8 * s, 2 * ctas - (kFault == RingFault::too_many_arrivals));
    }
    if (kFault != RingFault::no_fence) mbarrier::fence_init();
  }
  cluster_barrier();
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 2) {  // producer
    for (int i = 0; i < rounds && lane == 0; ++i) {
      const u32 stage = i % 2, round = i / 2 % 2;
      mbarrier::wait(empty + 8 * stage, round ^ 1);
      mbarrier::arrive_expecting(full + 8 * stage, kBytes + 16 * (kFault == RingFault::too_many_bytes));
      const u32 part = kBytes / ctas;
      bulk_load_multicast(base + stage * kBytes + cluster_rank() * part,
                          reinterpret_cast<const char*>(from) + i * kBytes + cluster_rank() * part, part,
                          full + 8 * stage, (1 << ctas) - 1);
    }
  } else {
    for (int i = 0; i < rounds; ++i) {
      const u32 stage = i % 2, round = i / 2 % 2;
      const auto release = [&] {
        __syncwarp();
        if (kFault != RingFault::no_release && lane < ctas)
          mbarrier::arrive_remote(address_in(lane, empty + 8 * stage));
      };
      if (kFault != RingFault::no_wait) mbarrier::wait(full + 8 * stage, round);
      if (kFault == RingFault::early_release) release();
      const u32 word = load_shared(base + stage * kBytes + 4 * threadIdx.x);
      to[(blockIdx.x * rounds + i) * 64 + threadIdx.x] = word;
      if (kFault != RingFault::early_release) release();
    }
  }
  if (kFault != RingFault::leaves) cluster_barrier();
}

enum class Fault { one_waits, other_count, divergence, outside, misaligned, remote_in_own, polls };
template <Fault kFault>
__global__ void faulty() {
  const u32 base = dynamic_shared();
  if (threadIdx.x == 0) mbarrier::init(base, 2), mbarrier::fence_init();
  __syncthreads();
  switch (kFault) {
    case Fault::one_waits:
      if (threadIdx.x == 40) mbarrier::arrive(base);
      if (threadIdx.x == 5) mbarrier::wait(base, 0);
      break;
    case Fault::other_count:
      named_barrier(3, threadIdx.x < 32 ? 64 : 96);
      break;
    case Fault::divergence:
      if (threadIdx.x == 7) {
        __syncwarp();
      } else {
        __ballot_sync(kAllLanes, true);
      }
      break;
    case Fault::outside:
      store_shared(base + 4096, 1);
      break;
    case Fault::misaligned:
      bulk_load(base + 24, nullptr, 16, base);
      break;
    case Fault::remote_in_own:
      mbarrier::arrive(address_in(0, base));
      break;
    case Fault::polls:
      while (!mbarrier::is_done(base, 0)) {
      }
      break;
  }
}

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
using emulator::Shape;
using kernels::Fault;
using kernels::ProductFault;
using kernels::RingFault;

constexpr int kSeeds = 40;

// How many of kSeeds runs are wrong; a run says whether it was right, and an error is not.
template <typename F>
int wrong_runs(F&& right) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    try {
      wrong += !right(seed);
    } catch (const Error&) {
      ++wrong;
    }
  }
  return wrong;
}

// What the run says that is wrong; empty: nothing.
template <typename F, typename... Args>
std::string error_of(F&& run, Args... args) {
  try {
    run(args...);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

template <bool kFaulty>
bool sums_right(std::uint64_t seed) {
  std::vector<float> values(3 * 96);
  std::iota(values.begin(), values.end(), 0.0f);
  emulate(&kernels::sum_block<kFaulty>, {.blocks = 3, .threads = 96}, seed, values.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 96 * 95 / 2 + 96 * 96 * static_cast<float>(i / 96)) return false;
  }
  return true;
}

TEST(Emulator, SumsOfABlockAndAMissingBarrier) {
  EXPECT_EQ(wrong_runs(&sums_right<false>), 0);
  EXPECT_GT(wrong_runs(&sums_right<true>), kSeeds / 2);
}

template <RingFault kFault>
bool ring_right(std::uint64_t seed) {
  constexpr int kRounds = 9;
  alignas(16) std::uint32_t from[kRounds * 64];
  std::iota(std::begin(from), std::end(from), 1u);
  std::vector<std::uint32_t> to(4 * kRounds * 64);
  const std::uint32_t* const source = from;
  emulate(&kernels::ring<kFault>, {.blocks = 4, .threads = 96, .dynamic_shared_bytes = 544, .cluster = 2}, seed, source,
          to.data(), kRounds, 2u);
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i] != from[i % std::size(from)]) return false;
  }
  return true;
}

TEST(Emulator, ARingThatAClusterFills) {
  EXPECT_EQ(wrong_runs(&ring_right<RingFault::none>), 0);
  EXPECT_GT(wrong_runs(&ring_right<RingFault::no_wait>), kSeeds / 2);
  EXPECT_GT(wrong_runs(&ring_right<RingFault::early_release>), kSeeds / 4);
  EXPECT_GT(wrong_runs(&ring_right<RingFault::leaves>), kSeeds / 4);
  EXPECT_THAT(error_of(&ring_right<RingFault::no_fence>, 1), testing::HasSubstr("fence_init"));
  EXPECT_THAT(error_of(&ring_right<RingFault::too_many_arrivals>, 1), testing::HasSubstr("arrivals"));
  EXPECT_THAT(error_of(&ring_right<RingFault::no_release>, 1), testing::HasSubstr("deadlock"));
  EXPECT_THAT(error_of(&ring_right<RingFault::too_many_bytes>, 1), testing::HasSubstr("16 bytes are missing"));
}

template <Fault kFault>
std::string fault() {
  return error_of([] { emulate(&kernels::faulty<kFault>, {.threads = 64, .dynamic_shared_bytes = 4096}, 7); });
}

TEST(Emulator, FaultsAreSaidWithTheirFigures) {
  const std::string deadlock = fault<Fault::one_waits>();
  EXPECT_THAT(deadlock, testing::HasSubstr("seed 7"));
  EXPECT_THAT(deadlock, testing::HasSubstr("0:5: mbarrier at 0x400, phase of parity 0"));
  EXPECT_THAT(deadlock, testing::HasSubstr("1 of 2 arrivals and 0 bytes are missing"));
  EXPECT_THAT(fault<Fault::other_count>(), testing::AllOf(testing::HasSubstr("64"), testing::HasSubstr("96")));
  EXPECT_THAT(fault<Fault::divergence>(), testing::HasSubstr("the warp diverges"));
  EXPECT_THAT(fault<Fault::outside>(), testing::HasSubstr("0x1400, the block has [0x400, 0x1400)"));
  EXPECT_THAT(fault<Fault::misaligned>(), testing::HasSubstr("no multiple of 16"));
  EXPECT_THAT(fault<Fault::remote_in_own>(), testing::HasSubstr("mapa"));
  EXPECT_THAT(fault<Fault::polls>(), testing::HasSubstr("polls for ever"));
}

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

TEST(Emulator, WarpgroupProductsOfEveryLayout) {
  EXPECT_EQ(wrong_runs(&product_right<128, 64, 128, false, true>), 0);
  EXPECT_EQ(wrong_runs(&product_right<112, 128, 128, false, false>), 0);
  EXPECT_EQ(wrong_runs(&product_right<16, 32, 64, false, false>), 0);
  EXPECT_EQ(wrong_runs(&product_right<48, 48, 32, false, true>), 0);
  EXPECT_EQ(wrong_runs(&product_right<64, 48, 128, true, true>), 0);
  EXPECT_EQ(wrong_runs(&product_right<128, 32, 128, true, true>), 0);
  EXPECT_EQ(wrong_runs(&product_right<96, 16, 64, true, true>), 0);
  EXPECT_EQ(wrong_runs(&product_right<16, 64, 32, true, true>), 0);
}

TEST(Emulator, FaultsOfWarpgroupProducts) {
  EXPECT_EQ(wrong_runs(&product_right<32, 64, 128, false, false, ProductFault::unpublished>), kSeeds);
  EXPECT_EQ(wrong_runs(&product_right<32, 64, 128, false, false, ProductFault::no_wait>), kSeeds);
  EXPECT_GT(wrong_runs(&product_right<32, 64, 128, false, false, ProductFault::reused>), kSeeds / 4);
  EXPECT_THAT(error_of(&product_right<32, 64, 128, false, false, ProductFault::no_begin>, 1),
              testing::HasSubstr("without a fence"));
  EXPECT_THAT(error_of(&product_right<32, 64, 128, false, false, ProductFault::touched>, 1),
              testing::HasSubstr("accumulator 3 of 16 was written"));
}

TEST(Emulator, FragmentsOfAWarp) {
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

TEST(Emulator, HalfArithmeticRoundsOnce) {
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
