// Views of the caller's memory. Strides are in elements and may be zero or negative.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/dtype.hpp"

namespace gnomon {

// A [B, S, d_model] tensor. `data` is the address of element (0, 0, 0).
template <typename Void>
struct BasicTensorView {
  Void* data = nullptr;
  DType dtype = DType::f32;
  std::array<std::int64_t, 3> shape{};
  std::array<std::int64_t, 3> strides{};

  static BasicTensorView contiguous(Void* data, DType dtype, std::array<std::int64_t, 3> shape) {
    return {data, dtype, shape, {shape[1] * shape[2], shape[2], 1}};
  }
  std::int64_t elements() const { return shape[0] * shape[1] * shape[2]; }
};
using ConstTensorView = BasicTensorView<const void>;
using TensorView = BasicTensorView<void>;

// A [B, S] padding mask of bytes: nonzero = valid token. A query sees a key when the key is valid and,
// in a causal stack, not later than the query. A query that sees no key gets attention output 0.
struct MaskView {
  const std::uint8_t* data = nullptr;
  std::array<std::int64_t, 2> shape{};
  std::array<std::int64_t, 2> strides{};  // in bytes
  bool valid(std::int64_t b, std::int64_t s) const { return data[b * strides[0] + s * strides[1]] != 0; }
};

// One forward pass on the caller's memory. `output` may be exactly `input` (same address and strides).
struct Call {
  ConstTensorView input;
  std::optional<MaskView> mask;
  TensorView output;
  void* stream = nullptr;  // the device stream to work on; ignored by the CPU
};

// The same call on its sequences [first, first + count).
inline Call sequences_of(const Call& call, std::int64_t first, std::int64_t count) {
  Call part = call;
  part.input.shape[0] = part.output.shape[0] = count;
  const auto offset = [first](const auto& view) { return first * view.strides[0] * static_cast<std::int64_t>(size_of(view.dtype)); };
  part.input.data = static_cast<const char*>(call.input.data) + offset(call.input);
  part.output.data = static_cast<char*>(call.output.data) + offset(call.output);
  if (part.mask) {
    part.mask->shape[0] = count;
    part.mask->data += first * part.mask->strides[0];
  }
  return part;
}

}  // namespace gnomon
