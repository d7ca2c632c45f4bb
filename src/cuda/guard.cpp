#include "cuda/guard.hpp"

#include <algorithm>

#include "cuda/instantiate.hpp"

namespace gnomon::cuda {
namespace {

constexpr int kDecideThreads = 32, kThreads = 256;  // guard.cuh: kDecideThreads, kCommitThreads

}  // namespace

Launch<kernels::Decide> decide(KernelLibrary& library) {
  Launch<kernels::Decide> launch;
  launch.kernel = &library.get(instantiate("guard.cuh", "decide", kDecideThreads));
  launch.shape = {.blocks = 1, .threads = kDecideThreads};
  return launch;
}

Launch<kernels::ReloadRows> reload_rows(KernelLibrary& library, DType dtype, std::int64_t rows, std::int64_t width) {
  Launch<kernels::ReloadRows> launch;
  launch.kernel = &library.get(instantiate("guard.cuh", "reload_rows", dtype));
  constexpr std::int64_t kBlocksEach = 8;  // fill a multiprocessor
  const std::int64_t most = kBlocksEach * library.device().properties().multiprocessors;
  launch.shape = {.blocks = std::min((rows * width + kThreads - 1) / kThreads, most), .threads = kThreads};
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
