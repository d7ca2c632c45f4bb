// Launches of kernels/rows.cuh, and how the caller's rows may be accessed.
#pragma once

#include <optional>

#include "core/tensor.hpp"
#include "cuda/kernel.hpp"
#include "cuda/kernels/params.cuh"

namespace gnomon::cuda {

// Elements that one access may take: adjacent, and aligned in every row; 8, 4, 2 or 1.
struct RowAccess {
  kernels::RowStrides strides;
  int vec = 1;
};
RowAccess row_access(const ConstTensorView& view);
RowAccess row_access(const TensorView& view);
kernels::RowStrides contiguous_rows(std::int64_t rows, std::int64_t width);
int widest_vec(std::int64_t width);  // of rows that are ours: contiguous and aligned

kernels::MaskBytes mask_bytes(const std::optional<MaskView>& mask);  // no mask: every token is valid

// `vec` at most what row_access() found for the tensor that will be given. Strides, addresses and what is wanted of the
// range go into the launch's params.
Launch<kernels::LoadRows> load_rows(KernelLibrary& library, DType from, std::optional<DType> narrow, std::int64_t rows,
                                    std::int64_t width, int vec);

}  // namespace gnomon::cuda
