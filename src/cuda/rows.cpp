#include "cuda/rows.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/error.hpp"
#include "cuda/instantiate.hpp"

namespace gnomon::cuda {
namespace {

constexpr int kThreads = 256;  // rows.cuh: kRowThreads

template <typename Void>
RowAccess access(const BasicTensorView<Void>& view) {
  const auto& [batch, seq, width] = view.shape;
  RowAccess result;
  result.strides = {seq, view.strides[0], view.strides[1], view.strides[2]};
  if (batch == 1 || view.strides[0] == seq * view.strides[1]) result.strides.seq = batch * seq;
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  for (const int vec : {8, 4, 2}) {
    const std::int64_t unit = std::min<std::int64_t>(16, vec * size);
    const auto aligned = [&](std::int64_t elements) { return elements * size % unit == 0; };
    if (view.strides[2] == 1 && width % vec == 0 && reinterpret_cast<std::uintptr_t>(view.data) % unit == 0 &&
        (seq == 1 || aligned(view.strides[1])) && (batch == 1 || aligned(view.strides[0]))) {
      result.vec = vec;
      break;
    }
  }
  return result;
}

}  // namespace

RowAccess row_access(const ConstTensorView& view) { return access(view); }
RowAccess row_access(const TensorView& view) { return access(view); }

kernels::RowStrides contiguous_rows(std::int64_t rows, std::int64_t width) { return {rows, rows * width, width, 1}; }

int widest_vec(std::int64_t width) { return width % 8 == 0 ? 8 : width % 4 == 0 ? 4 : width % 2 == 0 ? 2 : 1; }

kernels::MaskBytes mask_bytes(const std::optional<MaskView>& mask) {
  if (!mask) return {};
  return {mask->data, mask->shape[1], mask->strides[0], mask->strides[1]};
}

Launch<kernels::LoadRows> load_rows(KernelLibrary& library, DType from, std::optional<DType> narrow, std::int64_t rows,
                                    std::int64_t width, int vec) {
  // Of 16 bytes: what neighbouring threads take lies side by side, in whole sectors.
  vec = std::min(vec, static_cast<int>(16 / size_of(from)));
  const auto accesses = static_cast<std::uint64_t>(width / vec);
  // A row of many accesses gets the whole block: a warp would walk along it while its neighbours wait in the same way.
  const int lanes = accesses > 1024 ? kThreads : static_cast<int>(std::min<std::uint64_t>(32, std::bit_ceil(accesses)));
  Launch<kernels::LoadRows> launch;
  launch.kernel = &library.get(instantiate("rows.cuh", "load_rows", from, narrow, vec, lanes));
  launch.shape = {.blocks = (rows * lanes + kThreads - 1) / kThreads, .threads = kThreads};
  launch.params.strides = contiguous_rows(rows, width);
  launch.params.rows = rows;
  launch.params.width = static_cast<kernels::i32>(width);
  return launch;
}

}  // namespace gnomon::cuda
