// Runs a device kernel of src/cuda/kernels on the CPU. How to use it:
//
//   #include "cuda/emulator/emulate.hpp"
//   #include "emulated/norm.cuh"  // the real file; headers of PTX wrappers are replaced by those of emulator/kernels
//
//   emulate(&kernels::norm_rows<float, none, f16, none, 4, 32, 1, 1>, {.blocks = 7, .threads = 128}, seed, params);
//
// Put such a file into tests/cuda/emulated. A wrapper of PTX that is new in src/cuda/kernels needs a sibling in
// emulator/kernels; dynamic shared memory of another name than those there are needs a line in shared_memory.cpp.
//
// Pointers in `params` are ordinary ones. Throws gnomon::Error, with seed, CTA and thread, for what a device would
// answer with a wrong result or none at all:
//   - nobody can go on (with who waits for what); a barrier that gets more arrivals, or a warp that diverges in a
//     collective; barriers that are not initialised, or not fenced before somebody else uses them;
//   - shared memory out of bounds or misaligned, operands of wgmma that its descriptor places elsewhere than where the
//     hardware can read them, copies of the copy engine that are no multiples of 16 bytes;
//   - shared memory written by a thread and sent by the copy engine without publish_shared_writes between (wgmma reads
//     NaN there, and the report says so);
//   - wgmma's accumulators used, or gone, before they are waited for.
//
// Each CUDA thread is a fiber. All CTAs of a cluster run together, clusters one after another in random order. Fibers
// change places at barriers, collectives and waits, in an order drawn from `seed`. What the hardware does on its own
// (cp.async, bulk copies, wgmma) happens at a moment drawn from those that the model permits; what it will write holds
// NaN until then, so that a wait, a barrier or a fence too few shows in the result for some seeds: run several.
//
// Not modelled: time, registers and occupancy; what threads write and read without a wait or barrier between (they take
// turns there, whole); which scope a fence or an arrival has (what is written is seen by all at once); __shared__
// arrays of a fixed size hold what the block before left, not NaN; device memory's bounds (compile with the address
// sanitizer).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>

namespace gnomon::emulator {

struct Shape {
  std::int64_t blocks = 1;
  int threads = 128;
  int dynamic_shared_bytes = 0;
  int cluster = 1;  // blocks of a thread-block cluster
};

// What wgmma read though it had not been published: it saw NaN. Harmless where the result is not used.
struct Report {
  std::uint64_t unpublished_reads = 0;
  std::string first_unpublished_read;
};

Report run(const Shape& shape, std::uint64_t seed, const std::function<void()>& thread);

template <typename... Params, typename... Args>
Report emulate(void (*kernel)(Params...), const Shape& shape, std::uint64_t seed, const Args&... args) {
  static_assert((std::is_trivially_copyable_v<Args> && ...), "a kernel takes its parameters as bytes");
  return run(shape, seed, [&] { kernel(args...); });
}

}  // namespace gnomon::emulator
