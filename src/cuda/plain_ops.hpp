// Launches of kernels/plain_ops.cuh: the reference's passes, each complete in itself.
#pragma once

#include <optional>

#include "core/tensor.hpp"
#include "cuda/kernel.hpp"
#include "cuda/kernels/params.cuh"

namespace gnomon::cuda {

class PlainOps {
 public:
  explicit PlainOps(KernelLibrary& library) : library_(library) {}

  Launch<kernels::PlainElements> add(const float* a, const float* b, float* to, std::int64_t n) const;
  Launch<kernels::PlainElements> add_bias(const float* x, const float* bias, float* to, std::int64_t rows,
                                          std::int64_t width) const;
  Launch<kernels::PlainElements> scale(const float* x, float factor, float* to, std::int64_t n) const;
  Launch<kernels::PlainHeads> split_heads(const kernels::PlainHeads& p) const;
  Launch<kernels::PlainHeads> merge_heads(const kernels::PlainHeads& p) const;
  Launch<kernels::PlainScores> mask_causal(const kernels::PlainScores& p) const;
  Launch<kernels::PlainScores> mask_keys(const kernels::PlainScores& p) const;
  Launch<kernels::PlainScores> softmax(const kernels::PlainScores& p) const;
  Launch<kernels::PlainWeigh> weigh(const kernels::PlainWeigh& p) const;
  Launch<kernels::PlainNorm> norm(const kernels::PlainNorm& p) const;

 private:
  template <typename Params>
  Launch<Params> launch(const char* kernel, const Params& params, std::int64_t threads) const;

  KernelLibrary& library_;
};

}  // namespace gnomon::cuda
