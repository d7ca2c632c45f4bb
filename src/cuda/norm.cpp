#include "cuda/norm.hpp"

#include <algorithm>
#include <bit>

#include "core/error.hpp"
#include "cuda/instantiate.hpp"

namespace gnomon::cuda {
namespace {

constexpr std::int64_t kPerThread = 32;  // elements that a thread keeps in registers without spilling
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
  const std::int64_t accesses = width / vec, most = kPerThread / vec;
  auto lanes = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(accesses)));
  if (lanes > 32) lanes = std::max<std::int64_t>(32, lanes / most);
  const std::int64_t chunks = (accesses + lanes - 1) / lanes;
  const std::int64_t threads = lanes > 32 ? lanes : 128;  // norm.cuh: norm_threads
  const std::int64_t rows_per_block = threads / lanes;
  Launch<kernels::NormRows> launch;
  const auto name = [&](auto... last) {
    return instantiate("norm.cuh", "norm_rows", types.residual, types.branch, types.narrow, types.out, vec,
                       static_cast<int>(lanes), static_cast<int>(chunks), last...);
  };
  launch.kernel = &library.get(branch_step == 1 ? name() : name(branch_step));
  launch.shape = {.blocks = (rows + rows_per_block - 1) / rows_per_block, .threads = static_cast<int>(threads)};
  launch.params.residual_strides = launch.params.to_strides = contiguous_rows(rows, width);
  launch.params.rows = rows;
  launch.params.width = static_cast<kernels::i32>(width);
  return launch;
}

}  // namespace gnomon::cuda
