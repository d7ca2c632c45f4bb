// The emulator itself: barriers, copies and who waits for whom. Small kernels that do right, whose results are known,
// and kernels with one fault each, which must be found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "cuda/emulated/find_faults.hpp"
#include "cuda/emulator/emulate.hpp"
#include "emulated/bulk_copy.cuh"
#include "emulated/memory.cuh"
#include "emulated/reduce.cuh"

namespace gnomon::kernels {

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

// The two CTAs of a cluster swap sixteen bytes a thread, when both have begun.
enum class SwapFault { none, alone, no_wait, no_second_half };
template <SwapFault kFault>
__global__ void swap_registers(u32* values) {
  const u32 base = dynamic_shared(), ready = base + 32 * 16, mine = base + threadIdx.x * 16;
  if (threadIdx.x == 0) mbarrier::init(ready, 1), mbarrier::fence_init();
  __syncwarp();
  if (kFault != SwapFault::alone) cluster_arrive_relaxed();
  if (threadIdx.x == 0) mbarrier::arrive_expecting(ready, 32 * 16);
  if (kFault != SwapFault::alone) cluster_wait();
  u32& value = values[blockIdx.x * 32 + threadIdx.x];
  const u32 v[4] = {0, 0, 0, value}, other = cluster_rank() ^ 1;
  send_registers(address_in(other, mine), v, address_in(other, ready));
  if (kFault != SwapFault::no_wait) mbarrier::wait(ready, 0);
  value = load_shared(mine + 12);
  if (kFault == SwapFault::no_second_half) cluster_arrive_relaxed();
}

// The two CTAs of a cluster give each other 512 bytes in turns, from one place to one place.
enum class CopyFault { none, source_reused };
template <CopyFault kFault>
__global__ void swap_copies(u32* values, int rounds) {
  const u32 base = dynamic_shared(), there = base + 512, full = base + 1024, read = full + 8;
  if (threadIdx.x == 0) mbarrier::init(full, 1), mbarrier::init(read, 1), mbarrier::fence_init();
  cluster_barrier();
  const u32 other = cluster_rank() ^ 1;
  u32 value = values[blockIdx.x * 32 + threadIdx.x];
  for (int round = 0; round < rounds; ++round) {
    if (kFault != CopyFault::source_reused) mbarrier::wait(read, round % 2 ^ 1);
    for (u32 i = 0; i < 4; ++i) store_shared(base + 16 * threadIdx.x + 4 * i, value);
    publish_shared_writes();
    __syncwarp();
    if (threadIdx.x == 0) {
      mbarrier::arrive_expecting(full, 512);
      bulk_send(address_in(other, there), base, 512, address_in(other, full));
    }
    mbarrier::wait(full, round % 2);
    value = load_shared(there + 16 * threadIdx.x + 12) + 1;
    __syncwarp();
    if (threadIdx.x == 0) mbarrier::arrive_remote(address_in(other, read));
  }
  values[blockIdx.x * 32 + threadIdx.x] = value;
  cluster_barrier();
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

}  // namespace gnomon::kernels

namespace gnomon::test {
namespace {

using emulator::emulate;
using kernels::CopyFault;
using kernels::Fault;
using kernels::RingFault;
using kernels::SwapFault;

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

template <SwapFault kFault>
bool swaps_right(std::uint64_t seed) {
  std::vector<std::uint32_t> values(64);
  std::iota(values.begin(), values.end(), 1u);
  emulate(&kernels::swap_registers<kFault>, {.blocks = 2, .threads = 32, .dynamic_shared_bytes = 520, .cluster = 2},
          seed, values.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != (i + 32) % 64 + 1) return false;
  }
  return true;
}

TEST(Emulator, RegistersThatCtasSwap) {
  EXPECT_EQ(wrong_runs(&swaps_right<SwapFault::none>), 0);
  EXPECT_GT(wrong_runs(&swaps_right<SwapFault::alone>), kSeeds / 4);
  EXPECT_GT(wrong_runs(&swaps_right<SwapFault::no_wait>), kSeeds / 2);
  EXPECT_THAT(error_of(&swaps_right<SwapFault::no_second_half>, 1), testing::HasSubstr("between"));
}

template <CopyFault kFault>
bool copies_right(std::uint64_t seed) {
  std::vector<std::uint32_t> values(64);
  std::iota(values.begin(), values.end(), 1u);
  emulate(&kernels::swap_copies<kFault>, {.blocks = 2, .threads = 32, .dynamic_shared_bytes = 1040, .cluster = 2}, seed,
          values.data(), 5);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != (i + 32) % 64 + 1 + 5) return false;
  }
  return true;
}

TEST(Emulator, CopiesWhoseSourceIsReused) {
  EXPECT_EQ(wrong_runs(&copies_right<CopyFault::none>), 0);
  EXPECT_GT(wrong_runs(&copies_right<CopyFault::source_reused>), kSeeds / 8);
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

}  // namespace
}  // namespace gnomon::test
