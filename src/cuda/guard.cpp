#include "cuda/guard.hpp"

#include "cuda/instantiate.hpp"

namespace gnomon::cuda {
namespace {

constexpr int kThreads = 256;  // guard.cuh: kCommitThreads

}  // namespace

Launch<kernels::CommitRows> commit_rows(KernelLibrary& library, DType dtype, std::int64_t rows, std::int64_t width,
                                        int vec) {
  Launch<kernels::CommitRows> launch;
  launch.kernel = &library.get(instantiate("guard.cuh", "commit_rows", dtype, vec));
  launch.shape = {.blocks = (rows * width / vec + kThreads - 1) / kThreads, .threads = kThreads};
  launch.params.rows = rows;
  launch.params.width = static_cast<kernels::i32>(width);
  return launch;
}

}  // namespace gnomon::cuda
