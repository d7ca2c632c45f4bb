// Launches of kernels/norm.cuh: residual + branch + bias, LayerNorm, casts.
#pragma once

#include <optional>
#include <string>

#include "cuda/kernel.hpp"
#include "cuda/kernels/params.cuh"
#include "cuda/rows.hpp"

namespace gnomon::cuda {

struct NormTypes {
  DType residual = DType::f32;
  std::optional<DType> branch;  // the product's output that is added
  std::optional<DType> narrow;  // the copy for the next product
  std::optional<DType> out;     // the caller's output
  bool remainder = false;       // the residual is 16-bit rows with their remainder
};

std::optional<std::string> refuses_norm(std::int64_t width);

// `vec` at most what row_access() found for residual and output. Which outputs there are, and which vectors, is said by
// the pointers put into the launch's params; strides begin as contiguous. The branch's rows are `branch_step` widths
// apart.
Launch<kernels::NormRows> norm_rows(KernelLibrary& library, const NormTypes& types, std::int64_t rows,
                                    std::int64_t width, int vec, int branch_step = 1);

}  // namespace gnomon::cuda
