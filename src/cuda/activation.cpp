#include "cuda/activation.hpp"

#include "core/error.hpp"
#include "cuda/instantiate.hpp"
#include "cuda/rows.hpp"

namespace gnomon::cuda {
namespace {

constexpr int kThreads = 256;  // activation.cuh: kActivateThreads

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

}  // namespace

Launch<kernels::Activate> activate(KernelLibrary& library, DType dtype, Activation activation, std::int64_t rows,
                                   std::int64_t width) {
  const int vec = widest_vec(width);
  Launch<kernels::Activate> launch;
  launch.kernel = &library.get(instantiate("activation.cuh", "activate", dtype, function_name(activation), vec));
  launch.shape = {.blocks = (rows * width / vec + kThreads - 1) / kThreads, .threads = kThreads};
  launch.params.rows = rows;
  launch.params.width = static_cast<kernels::i32>(width);
  return launch;
}

}  // namespace gnomon::cuda
