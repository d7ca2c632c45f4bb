// load_rows on the emulator: layouts, types, a row in a few lanes and in a block, and the range guard.
#include "emulated/rows.cuh"

#include <fmt/format.h>

#include "cuda/emulated/on_emulator.hpp"
#include "cuda/rows_cases.hpp"

namespace gnomon::test {
namespace {

using kernels::bf16;
using kernels::f16;

template <typename In, typename Narrow, int kVec, int kLanes>
LoadedRows load(const TestTensor& host, double least, double greatest, Rng& rng, const TestMask* mask = nullptr) {
  return load_rows_of<HostBytes>(
      host, dtype_of<Narrow>, least, greatest, mask, [&](const ConstTensorView& view, auto&& fill) {
        const std::int64_t rows = view.shape[0] * view.shape[1];
        kernels::LoadRows p{};
        p.strides = {view.shape[1], view.strides[0], view.strides[1], view.strides[2]};
        p.rows = rows;
        p.width = static_cast<kernels::i32>(view.shape[2]);
        fill(p);
        emulator::emulate(&kernels::load_rows<In, Narrow, kVec, kLanes>,
                          {.blocks = (rows * kLanes + kernels::kRowThreads - 1) / kernels::kRowThreads,
                           .threads = kernels::kRowThreads},
                          rng(), p);
      });
}

template <typename In, typename Narrow, int kVec, int kLanes>
void expect_right(std::array<std::int64_t, 3> shape, Layout layout, Rng& rng) {
  SCOPED_TRACE(fmt::format("[{}, {}, {}] {} {} vec {} lanes {}", shape[0], shape[1], shape[2],
                           gnomon::name_of(dtype_of<In>), name_of(layout), kVec, kLanes));
  TestTensor host(shape, dtype_of<In>, layout);
  host.fill_normal(rng);
  expect_rows_right(host, dtype_of<Narrow>, load<In, Narrow, kVec, kLanes>(host, 0, 1e30, rng));
}

TEST(EmulatedRows, CopiesAreExact) {
  Rng rng(test_seed());
  for (const Layout layout : kOwnLayouts) {
    expect_right<float, f16, 1, 32>({3, 7, 40}, layout, rng);
    expect_right<bf16, bf16, 1, 8>({2, 5, 7}, layout, rng);
  }
  for (const Layout layout : {Layout::contiguous, Layout::sequence_first, Layout::every_other_row}) {
    expect_right<float, f16, 4, 32>({3, 7, 128}, layout, rng);
    expect_right<f16, f16, 4, 8>({2, 5, 20}, layout, rng);
  }
  expect_right<float, f16, 4, 256>({2, 2, 9000}, Layout::contiguous, rng);
}

TEST(EmulatedRows, TheGuardSeesOneRowOutsideAndOnlyThat) {
  Rng rng(test_seed());
  TestTensor host({3, 11, 64});
  host.fill(2);
  EXPECT_EQ((load<float, f16, 4, 16>(host, 1.9, 2.1, rng).flags), 0u);
  EXPECT_EQ((load<float, f16, 4, 16>(host, 2.1, 3, rng).flags), kernels::kOutsideRange);
  for (const double value : {1e20, -static_cast<double>(kInf), static_cast<double>(kNaN)}) {
    set_value(host.view(), 2, 10, 63, value);
    EXPECT_EQ((load<float, f16, 4, 16>(host, 1.9, 2.1, rng).flags), kernels::kOutsideRange) << value;
  }
}

TEST(EmulatedRows, PaddingOfZerosIsInsideAnyRange) {
  Rng rng(test_seed());
  TestTensor host({2, 6, 16});
  TestMask mask(2, 6, MaskKind::all_true, rng);
  host.fill(1);
  for (std::int64_t i = 0; i < 16; ++i) set_value(host.view(), 1, 4, i, 0);
  EXPECT_EQ((load<float, f16, 4, 4>(host, 0.5, 2, rng, &mask).flags), kernels::kOutsideRange);
  mask.set(1, 4, false);
  const LoadedRows padded = load<float, f16, 4, 4>(host, 0.5, 2, rng, &mask);
  EXPECT_EQ(padded.flags, 0u);
  EXPECT_EQ(padded.sizes[10], -1);
}

}  // namespace
}  // namespace gnomon::test
