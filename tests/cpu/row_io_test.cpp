#include "cpu/row_io.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cpu/floats.hpp"
#include "cpu/vector_test.hpp"
#include "support/tensors.hpp"

namespace gnomon::test {
namespace {

class RowIoTest : public VectorTest {};

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
// 600 features: more than two of the pieces that elements which are not adjacent go through.
constexpr std::array<std::int64_t, 3> kShapes[] = {{1, 1, 1}, {2, 3, 5}, {3, 4, 16}, {2, 2, 600}};

std::string describe(DType type, Layout layout, const std::array<std::int64_t, 3>& shape) {
  return fmt::format("{} {} [{}, {}, {}]", gnomon::name_of(type), name_of(layout), shape[0], shape[1], shape[2]);
}

TEST_F(RowIoTest, LoadsAnyLayoutFromAnyRow) {
  Rng rng(test_seed());
  std::vector<Layout> layouts(std::begin(kOwnLayouts), std::end(kOwnLayouts));
  layouts.push_back(Layout::broadcast);
  for (const DType type : kTypes) {
    for (const Layout layout : layouts) {
      for (const auto& shape : kShapes) {
        SCOPED_TRACE(describe(type, layout, shape));
        TestTensor tensor(shape, type, layout);
        tensor.fill_normal(rng);
        const std::vector<double> values = tensor.values();
        const std::int64_t rows = shape[0] * shape[1], d = shape[2];
        for (std::int64_t first = 0; first < rows; ++first) {
          const std::int64_t n = (rows - first + 1) / 2;
          const GuardedFloats to(n * d);
          cpu::load_rows(tensor.const_view(), first, n, to.data());
          ASSERT_TRUE(to.guards_intact());
          for (std::int64_t i = 0; i < n * d; ++i) ASSERT_EQ(to[i], values[static_cast<std::size_t>(first * d + i)]);
        }
      }
    }
  }
}

TEST_F(RowIoTest, StoresIntoAnyLayoutAndNothingElse) {
  Rng rng(test_seed());
  for (const DType type : kTypes) {
    for (const Layout layout : kOwnLayouts) {
      for (const auto& shape : kShapes) {
        SCOPED_TRACE(describe(type, layout, shape));
        TestTensor tensor(shape, type, layout), expected(shape, type, layout);
        const std::int64_t rows = shape[0] * shape[1], d = shape[2];
        const std::vector<float> from = normal_floats(rows * d, rng);
        const std::int64_t middle = rows / 2;
        cpu::store_rows(from.data() + middle * d, middle, rows - middle, tensor.view());
        for (std::int64_t r = middle; r < rows; ++r) {
          for (std::int64_t i = 0; i < d; ++i) {
            set_value(expected.view(), r / shape[1], r % shape[1], i, from[static_cast<std::size_t>(r * d + i)]);
          }
        }
        ASSERT_EQ(tensor.storage(), expected.storage());
      }
    }
  }
}

struct DirectCase {
  DType type;
  std::array<std::int64_t, 3> shape, strides;
  std::int64_t ld;  // 0: rows cannot be used where they lie
};

TEST_F(RowIoTest, DirectRowsOnlyWhereOneStrideLeadsThroughAllRows) {
  const DirectCase cases[] = {
      {DType::f32, {2, 3, 4}, {12, 4, 1}, 4},  {DType::f32, {2, 3, 4}, {21, 7, 1}, 7},
      {DType::f32, {1, 3, 4}, {99, 5, 1}, 5},  {DType::f32, {2, 3, 4}, {4, 8, 1}, 0},
      {DType::f32, {2, 3, 4}, {0, 4, 1}, 0},   {DType::f32, {2, 3, 4}, {24, 8, 2}, 0},
      {DType::f32, {1, 3, 4}, {12, -4, 1}, 0}, {DType::f32, {1, 3, 4}, {12, 0, 1}, 0},
      {DType::f32, {2, 3, 4}, {13, 4, 1}, 0},  {DType::f16, {2, 3, 4}, {12, 4, 1}, 0},
      {DType::bf16, {2, 3, 4}, {12, 4, 1}, 0},
  };
  std::vector<float> memory(200);
  for (const DirectCase& c : cases) {
    const ConstTensorView view{memory.data() + 100, c.type, c.shape, c.strides};
    std::int64_t ld = 0;
    const float* row = cpu::direct_rows(view, 2, &ld);
    EXPECT_EQ(row, c.ld ? memory.data() + 100 + 2 * c.ld : nullptr)
        << c.strides[0] << " " << c.strides[1] << " " << c.strides[2];
    if (row) {
      EXPECT_EQ(ld, c.ld);
    }
  }
}

}  // namespace
}  // namespace gnomon::test
