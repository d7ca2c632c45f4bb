#include "cuda/norm.hpp"

#include <algorithm>
#include <bit>

#include "core/error.hpp"
#include "cuda/instantiate.hpp"

namespace gnomon::cuda {
namespace {

constexpr std::int64_t kPerThread = 32;  // elements that a thread keeps in registers without spilling
constexpr std::int64_t kOfARow = 8;  // elements of one row that it takes where rows are short; norm.cuh: kReadsFirst
constexpr std::int64_t kMostLanes = 512;

}  // namespace

std::optional<std::string> refuses_norm(std::int64_t width) {
  if (width <= kPerThread * kMostLanes) return {};
  return fmt::format("the fused norm keeps a row in the registers of one block, which hold {} elements; d_model is {}",
                     kPerThread * kMostLanes, width);
}

Launch<kernels::NormRows> norm_rows(KernelLibrary& library, const NormTypes& types, std::int64_t rows,
                                    std::int64_t width, int vec, int branch_step) {
  if (const auto reason = refuses_norm(width)) throw_internal("{}", *reason);
  // Four fp32 elements are 16 bytes: what neighbouring threads take lies side by side, in whole sectors.
  vec = std::min(vec, 4);
  const std::int64_t accesses = width / vec;
  const auto lanes =
      std::min(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>((width + kOfARow - 1) / kOfARow))),
               kMostLanes);
  const std::int64_t chunks = (accesses + lanes - 1) / lanes;
  const std::int64_t threads = lanes > 32 ? lanes : 128;  // norm.cuh: norm_threads
  // Of short rows with a branch, two at a time: the vectors are read once for both, and twice as much is on its way.
  const std::int64_t rows_at_once = chunks * vec <= kOfARow && types.branch ? 2 : 1;
  const std::int64_t rows_per_block = threads / lanes * rows_at_once;
  Launch<kernels::NormRows> launch;
  launch.kernel = &library.get(instantiate("norm.cuh", "norm_rows", types.residual, types.branch, types.narrow,
                                           types.out, vec, static_cast<int>(lanes), static_cast<int>(chunks),
                                           static_cast<int>(rows_at_once), types.remainder, branch_step));
  launch.shape = {.blocks = (rows + rows_per_block - 1) / rows_per_block, .threads = static_cast<int>(threads)};
  launch.params.residual_strides = launch.params.to_strides = contiguous_rows(rows, width);
  launch.params.rows = rows;
  launch.params.width = static_cast<kernels::i32>(width);
  return launch;
}

}  // namespace gnomon::cuda
