// Counters in shared memory that threads wait for (src/cuda/kernels/progress.cuh).
#pragma once

#include <cstdint>

namespace gnomon::emulator {

void publish_progress(std::uint32_t counter, std::uint32_t count);
bool has_reached(std::uint32_t counter, std::uint32_t count);

}  // namespace gnomon::emulator
