#include "cuda/activation.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "cuda/instantiate.hpp"
#include "cuda/rows.hpp"

namespace gnomon::cuda {
namespace {

constexpr int kThreads = 256;  // activation.cuh: kActivateThreads
constexpr int kRows = 4;       // activation.cuh: kActivateRows

}  // namespace

const char* function_name(Activation activation) {
  switch (activation) {
    case Activation::gelu_erf:
      return "GeluErf";
    case Activation::gelu_tanh:
      return "GeluTanh";
    case Activation::relu:
      return "Relu";
  }
  throw_internal("activation {} is unknown", static_cast<int>(activation));
}

Launch<kernels::Activate> activate(KernelLibrary& library, DType dtype, Activation activation, std::int64_t rows,
                                   std::int64_t width) {
  const int vec = widest_vec(width);
  Launch<kernels::Activate> launch;
  launch.kernel = &library.get(instantiate("activation.cuh", "activate", dtype, function_name(activation), vec));
  const std::int64_t lanes = width / vec;  // activation.cuh: which thread has which columns and rows
  const std::int64_t column_blocks = (lanes + kThreads - 1) / kThreads;
  const std::int64_t rows_of_block = std::max<std::int64_t>(1, kThreads / lanes) * kRows;
  launch.shape = {.blocks = column_blocks * ((rows + rows_of_block - 1) / rows_of_block), .threads = kThreads};
  launch.params.rows = rows;
  launch.params.width = static_cast<kernels::i32>(width);
  return launch;
}

}  // namespace gnomon::cuda
