#include "cpu/row_io.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.hpp"
#include "cpu/vec_kernels.hpp"

namespace gnomon::cpu {
namespace {

template <typename Void>
auto row_address(const BasicTensorView<Void>& view, std::int64_t row) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  const std::int64_t offset = row / view.shape[1] * view.strides[0] + row % view.shape[1] * view.strides[1];
  return static_cast<Byte*>(view.data) + offset * static_cast<std::int64_t>(size_of(view.dtype));
}

void widen(DType dtype, const void* from, float* to, std::int64_t n) {
  const VecKernels& vec = vec_kernels();
  switch (dtype) {
    case DType::f32:
      std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
      return;
    case DType::f16:
      return vec.from_f16(static_cast<const std::uint16_t*>(from), to, n);
    case DType::bf16:
      return vec.from_bf16(static_cast<const std::uint16_t*>(from), to, n);
    case DType::f64:
      break;
  }
  throw_internal("an input of type {} passed the border", name_of(dtype));
}

void narrow(DType dtype, const float* from, void* to, std::int64_t n) {
  const VecKernels& vec = vec_kernels();
  switch (dtype) {
    case DType::f32:
      std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
      return;
    case DType::f16:
      return vec.to_f16(from, static_cast<std::uint16_t*>(to), n);
    case DType::bf16:
      return vec.to_bf16(from, static_cast<std::uint16_t*>(to), n);
    case DType::f64:
      break;
  }
  throw_internal("an output of type {} passed the border", name_of(dtype));
}

// Elements of a row that are not adjacent go through a small adjacent buffer of the same type.
constexpr std::int64_t kGathered = 256;

void copy_elements(const char* from, std::int64_t from_stride, char* to, std::int64_t to_stride, std::int64_t n,
                   std::int64_t size) {
  for (std::int64_t i = 0; i < n; ++i) {
    std::memcpy(to + i * to_stride * size, from + i * from_stride * size, static_cast<std::size_t>(size));
  }
}

// Calls convert(elements, at, n) for n adjacent elements, the ones from `at` on of all the rows: where they lie, or,
// when a row's elements are apart, in a small buffer that is gathered before (an input) or scattered afterwards (an
// output).
template <typename Void, typename Convert>
void for_adjacent_elements(const BasicTensorView<Void>& view, std::int64_t first_row, std::int64_t rows,
                           Convert convert) {
  constexpr bool is_input = std::is_const_v<Void>;
  const std::int64_t d = view.shape[2], stride = view.strides[2];
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  for (std::int64_t r = 0; r < rows; ++r) {
    auto* row = row_address(view, first_row + r);
    if (stride == 1) {
      convert(row, r * d, d);
      continue;
    }
    alignas(8) std::array<char, kGathered * 4> gathered;
    for (std::int64_t i = 0; i < d; i += kGathered) {
      const std::int64_t n = std::min(kGathered, d - i);
      auto* apart = row + i * stride * size;
      if constexpr (is_input) copy_elements(apart, stride, gathered.data(), 1, n, size);
      convert(gathered.data(), r * d + i, n);
      if constexpr (!is_input) copy_elements(gathered.data(), 1, apart, stride, n, size);
    }
  }
}

}  // namespace

void load_rows(const ConstTensorView& from, std::int64_t first_row, std::int64_t rows, float* to) {
  for_adjacent_elements(from, first_row, rows, [&](const void* elements, std::int64_t at, std::int64_t n) {
    widen(from.dtype, elements, to + at, n);
  });
}

void store_rows(const float* from, std::int64_t first_row, std::int64_t rows, const TensorView& to) {
  for_adjacent_elements(to, first_row, rows, [&](void* elements, std::int64_t at, std::int64_t n) {
    narrow(to.dtype, from + at, elements, n);
  });
}

}  // namespace gnomon::cpu
