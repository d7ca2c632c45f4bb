// In place of src/cuda/kernels/memory.cuh.
#pragma once

#include "cuda/emulator/shared_memory.hpp"
#include "half.cuh"

namespace gnomon::kernels {

inline u32 anew(u32 v) { return v; }

inline u32 load_shared(u32 address) {
  u32 v;
  emulator::ordinary_read(address, &v, sizeof v, "ld.shared.u32");
  return v;
}
inline void store_shared(u32 address, u32 v) { emulator::ordinary_write(address, &v, sizeof v, "st.shared.u32"); }

inline void store_shared(u32 address, float4 v) { emulator::ordinary_write(address, &v, sizeof v, "st.shared.v4.f32"); }

inline float4 shared_floats(u32 address) {
  float4 v;
  emulator::ordinary_read(address, &v, sizeof v, "ld.shared.v4.f32");
  return v;
}

inline float2 shared_pair(u32 address) {
  float2 v;
  emulator::ordinary_read(address, &v, sizeof v, "ld.shared.v2.f32");
  return v;
}

inline void load_pair(float& first, float& second, const float* from, bool there) {
  const float2 v = there ? *reinterpret_cast<const float2*>(from) : float2{0, 0};
  first = v.x, second = v.y;
}

template <typename T>
T load_in_order(const T* from) {
  return *from;
}

}  // namespace gnomon::kernels
