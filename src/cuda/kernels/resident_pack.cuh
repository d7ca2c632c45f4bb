// Packs a layer's weights for the resident kernel: fp16 tiles in the order in which it reads them, swizzled as its
// products want them, so that filling a stage is one plain copy; and the vectors in the orders of its fragments.
#pragma once

#include "resident_layout.cuh"
#include "resident_tile.cuh"

namespace gnomon::kernels::resident {

// The scores' scale, and log2 e for the softmax's exp2, go into the projection of q.
template <typename S>
__device__ __forceinline__ float query_scale() {
  return 1.4426950408889634f * rsqrtf(static_cast<float>(S::l.head));
}

// Element i of a tile, and where it lies in it.
template <typename S>
__device__ __forceinline__ float tile_element(const PackLayer& w, int tile, int i, u32& offset) {
  constexpr int kModel = S::c.model;
  const int row = i / 64, column = i % 64, block = tile / S::l.units;
  const int input = tile % S::l.units * 64 + column;
  offset = swizzle<128>(row * 128 + column * 2);
  switch (block) {
    case 0:
      return w.k[row * kModel + input];
    case 1:
      return w.v[row * kModel + input];
    case 2:
      return w.q[row * kModel + input] * query_scale<S>();
    case 3:
      return w.o[row * kModel + input];
    default:
      break;
  }
  const int chunk = (block - 4) / 2;
  if (block % 2 == 0) {
    return w.w1[(kModel * chunk + row) * kModel + input] * activation_factor<S::c.activation>;
  }
  return w.w2[row * S::c.hidden + kModel * chunk + input] / activated_factor<S::c.activation>;
}

// S: `Packed`, or any stack whose layout is a Packing.
template <typename S>
__global__ void __launch_bounds__(256) pack_layer(const PackLayer w) {
  const int first = blockIdx.x * 256 + threadIdx.x, step = gridDim.x * 256;
  for (int i = first; i < S::l.layer_tiles * 64 * S::c.model; i += step) {
    const int tile = i / (64 * S::c.model);
    u32 offset;
    const f16 v = from_float<f16>(tile_element<S>(w, tile, i % (64 * S::c.model), offset));
    *reinterpret_cast<f16*>(static_cast<char*>(w.tiles) + i64{tile} * S::l.tile_bytes + offset) = v;
  }
  const auto doubled = [&](const float* from, int at, int size, float scale = 1) {
    for (int i = first; i < size; i += step) {
      const float v = from ? from[i] * scale : 0;
      w.vectors[at + doubled_order(i)] = w.vectors[at + doubled_order(i) + 2] = v;
    }
  };
  const auto single = [&](const float* from, int at) {
    for (int i = first; i < S::c.model; i += step) w.vectors[at + fragment_order(i)] = from ? from[i] : 0;
  };
  doubled(w.bias_k, S::l.bias_k, S::c.model);
  doubled(w.bias_v, S::l.bias_v, S::c.model);
  doubled(w.bias_q, S::l.bias_q, S::c.model, query_scale<S>());
  doubled(w.bias_1, S::l.bias_1, S::c.hidden, activation_factor<S::c.activation>);
  single(w.bias_o, S::l.bias_o), single(w.bias_2, S::l.bias_2);
  single(w.gain1, S::l.gain1), single(w.shift1, S::l.shift1);
  single(w.gain2, S::l.gain2), single(w.shift2, S::l.shift2);
}

}  // namespace gnomon::kernels::resident
