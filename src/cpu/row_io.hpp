// Rows between the caller's tensors (any strides, any dtype) and our contiguous fp32 rows.
// Row r of a [B, S, d] tensor is token r % S of sequence r / S.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/tensor.hpp"

namespace gnomon::cpu {

void load_rows(const ConstTensorView& from, std::int64_t first_row, std::int64_t rows, float* to);
void store_rows(const float* from, std::int64_t first_row, std::int64_t rows, const TensorView& to);

// The address of row `first_row` when rows can be used where they lie (fp32, adjacent elements, one stride over all
// rows), and the floats between rows; null otherwise.
template <typename Void>
auto direct_rows(const BasicTensorView<Void>& view, std::int64_t first_row, std::int64_t* ld) {
  using Float = std::conditional_t<std::is_const_v<Void>, const float, float>;
  const bool uniform = view.shape[0] == 1 || view.strides[0] == view.shape[1] * view.strides[1];
  if (view.dtype != DType::f32 || view.strides[2] != 1 || !uniform || view.strides[1] < view.shape[2]) {
    return static_cast<Float*>(nullptr);
  }
  *ld = view.strides[1];
  return static_cast<Float*>(view.data) + first_row * *ld;
}

}  // namespace gnomon::cpu
