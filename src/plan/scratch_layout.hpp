// Where a bench's scratch output lies: in the caller's layout, since that is what will run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor.hpp"

namespace gnomon {

struct ScratchLayout {
  TensorView tensor;         // without an address
  std::size_t bytes = 0;     // from the lowest element to the highest
  std::ptrdiff_t first = 0;  // of element (0, 0, 0), in bytes from the lowest
};

// Dense where the caller's layout would take much more memory (a column slice of a wide tensor).
inline ScratchLayout scratch_layout(TensorView tensor) {
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  std::int64_t before = 0, after = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t reach = (tensor.shape[i] - 1) * tensor.strides[i];
    (reach < 0 ? before : after) += reach;
  }
  std::int64_t extent = after - before + 1;
  if (extent > 2 * tensor.elements()) {
    tensor = TensorView::contiguous(nullptr, tensor.dtype, tensor.shape);
    extent = tensor.elements();
    before = 0;
  }
  return {tensor, static_cast<std::size_t>(extent * size), -before * size};
}

}  // namespace gnomon
