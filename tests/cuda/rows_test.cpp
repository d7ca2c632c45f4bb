// load_rows: every layout and type of the caller's tensor, the copies bit for bit, and the range guard.
#include "cuda/rows.hpp"

#include <fmt/format.h>

#include "cuda/on_device.hpp"
#include "cuda/rows_cases.hpp"

namespace gnomon::test {
namespace {

class Rows : public OnDevice {
 protected:
  // Both copies of the tensor's rows, and what the guard said about [least, greatest].
  static LoadedRows load(const TestTensor& host, DType narrow, double least, double greatest,
                         const TestMask* mask = nullptr) {
    return load_rows_of<DeviceBytes>(
        host, narrow, least, greatest, mask, [&](const ConstTensorView& view, auto&& fill) {
          const auto& shape = view.shape;
          const cuda::RowAccess access = cuda::row_access(view);
          auto launch = cuda::load_rows(library(), view.dtype, narrow, shape[0] * shape[1], shape[2], access.vec);
          launch.params.strides = access.strides;
          fill(launch.params);
          launch.run(nullptr);
          synchronize();
        });
  }
};

TEST_F(Rows, CopiesAreExactFromEveryLayoutAndType) {
  Rng rng(test_seed());
  const std::array<std::int64_t, 3> shapes[] = {{3, 7, 128}, {2, 5, 20}, {1, 3, 7}, {4, 1, 2}, {2, 2, 9000}};
  for (const auto& shape : shapes) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const Layout layout : kOwnLayouts) {
        SCOPED_TRACE(
            fmt::format("[{}, {}, {}] {} {}", shape[0], shape[1], shape[2], gnomon::name_of(dtype), name_of(layout)));
        TestTensor host(shape, dtype, layout);
        host.fill_normal(rng);
        const DType narrow = dtype == DType::bf16 ? DType::bf16 : DType::f16;
        expect_rows_right(host, narrow, load(host, narrow, 0, 1e30));
      }
    }
  }
}

TEST_F(Rows, TheGuardSeesOneRowOutsideAndOnlyThat) {
  for (const std::int64_t width : {1, 5, 64, 128, 1024, 9000}) {
    SCOPED_TRACE(width);
    TestTensor host({3, 11, width});
    host.fill(2);
    EXPECT_EQ(load(host, DType::f16, 1.9, 2.1).flags, 0u);
    EXPECT_EQ(load(host, DType::f16, 2.1, 3).flags, kernels::kOutsideRange);
    const struct {
      double value;
      std::uint32_t flags;
    } cases[] = {{2, 0}, {1e20, 1}, {-kInf, 1}, {kNaN, 1}};
    for (const auto& c : cases) {
      set_value(host.view(), 2, 10, width - 1, c.value);
      EXPECT_EQ(load(host, DType::f16, 1.9, 2.1).flags, c.flags) << c.value;
    }
  }
}

TEST_F(Rows, PaddingOfZerosIsInsideAnyRangeAndOtherPaddingIsNot) {
  Rng rng(1);
  TestTensor host({2, 6, 16});
  TestMask mask(2, 6, MaskKind::all_true, rng);
  host.fill(1);
  for (std::int64_t i = 0; i < 16; ++i) set_value(host.view(), 1, 4, i, 0);
  EXPECT_EQ(load(host, DType::f16, 0.5, 2, &mask).flags, kernels::kOutsideRange);
  mask.set(1, 4, false);
  const LoadedRows padded = load(host, DType::f16, 0.5, 2, &mask);
  EXPECT_EQ(padded.flags, 0u);
  EXPECT_EQ(padded.sizes[10], -1);
  EXPECT_EQ(padded.sizes[9], 1);
  set_value(host.view(), 1, 4, 3, 100);
  EXPECT_EQ(load(host, DType::f16, 0.5, 2, &mask).flags, kernels::kOutsideRange);
}

TEST(RowAccess, VectorsNeedAdjacentAlignedElements) {
  alignas(16) static float store[4096];
  const auto vec = [](const float* data, std::array<std::int64_t, 3> shape, std::array<std::int64_t, 3> strides) {
    return cuda::row_access(ConstTensorView{data, DType::f32, shape, strides}).vec;
  };
  EXPECT_EQ(vec(store, {2, 3, 128}, {384, 128, 1}), 8);
  EXPECT_EQ(vec(store + 1, {2, 3, 128}, {384, 128, 1}), 1);
  EXPECT_EQ(vec(store + 2, {2, 3, 128}, {384, 128, 1}), 2);
  EXPECT_EQ(vec(store, {2, 3, 128}, {387, 128, 1}), 1);
  EXPECT_EQ(vec(store, {1, 3, 128}, {387, 128, 1}), 8);
  EXPECT_EQ(vec(store, {2, 3, 12}, {36, 12, 1}), 4);
  EXPECT_EQ(vec(store, {2, 3, 128}, {768, 256, 2}), 1);
  EXPECT_EQ(cuda::row_access(ConstTensorView{store, DType::f32, {2, 3, 4}, {12, 4, 1}}).strides.seq, 6);
  EXPECT_EQ(cuda::row_access(ConstTensorView{store, DType::f32, {2, 3, 4}, {0, 4, 1}}).strides.seq, 3);
}

}  // namespace
}  // namespace gnomon::test
