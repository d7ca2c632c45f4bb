// Whether the emulator finds what is wrong with a kernel.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "emulated/mma.cuh"

namespace gnomon::kernels {

__device__ inline u32 dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char shared[];
  return shared_address(shared);
}

}  // namespace gnomon::kernels

namespace gnomon::test {

inline constexpr int kSeeds = 40;

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

}  // namespace gnomon::test
