// In place of src/cuda/kernels/progress.cuh.
#pragma once

#include "cuda/emulator/progress.hpp"
#include "half.cuh"

namespace gnomon::kernels {

inline void publish_progress(u32 counter, u32 count) { emulator::publish_progress(counter, count); }
inline bool has_reached(u32 counter, u32 count) { return emulator::has_reached(counter, count); }
inline void wait_for_progress(u32 counter, u32 count) {
  while (!has_reached(counter, count)) {
  }
}

}  // namespace gnomon::kernels
