#include "cuda/guard.hpp"

#include <algorithm>

#include "cuda/instantiate.hpp"

namespace gnomon::cuda {
namespace {

constexpr int kThreads = 256;  // guard.cuh: kCommitThreads

}  // namespace

Launch<kernels::ReloadRows> reload_rows(KernelLibrary& library, DType dtype, std::int64_t rows, std::int64_t width) {
  Launch<kernels::ReloadRows> launch;
  launch.kernel = &library.get(instantiate("guard.cuh", "reload_rows", dtype));
  // Few blocks: nearly always they have nothing to do.
  const std::int64_t blocks =
      std::min<std::int64_t>((rows * width + kThreads - 1) / kThreads, library.device().properties().multiprocessors);
  launch.shape = {.blocks = blocks, .threads = kThreads};
  launch.params.rows = rows;
  launch.params.width = static_cast<kernels::i32>(width);
  return launch;
}

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
