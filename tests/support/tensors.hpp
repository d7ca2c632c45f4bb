// Tensors and masks of many layouts on guarded storage, and the comparison with the oracle.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/contract.hpp"
#include "core/tensor.hpp"

namespace gnomon::test {

using Rng = std::mt19937_64;

double value_at(const ConstTensorView& view, std::int64_t b, std::int64_t s, std::int64_t i);
void set_value(const TensorView& view, std::int64_t b, std::int64_t s, std::int64_t i, double value);
ConstTensorView as_const(const TensorView& view);

enum class Layout {
  contiguous,
  sequence_first,   // stored [S, B, d]
  column_slice,     // d columns of wider rows
  every_other_row,  // tokens 0, 2, 4, ... of a longer sequence
  every_other_column,
  feature_major,  // stored [B, d, S]
  reversed,       // negative stride along S
  broadcast,      // stride 0 along B; inputs only
};
inline constexpr Layout kOwnLayouts[] = {Layout::contiguous,      Layout::sequence_first,     Layout::column_slice,
                                         Layout::every_other_row, Layout::every_other_column, Layout::feature_major,
                                         Layout::reversed};
std::string_view name_of(Layout layout);

// Storage larger than the view by a margin on both sides, all of it NaN at first.
class TestTensor {
 public:
  TestTensor(std::array<std::int64_t, 3> shape, DType dtype = DType::f32, Layout layout = Layout::contiguous);

  const TensorView& view() const { return view_; }
  ConstTensorView const_view() const { return as_const(view_); }
  void fill_normal(Rng& rng, double scale = 1);
  void fill(double value);
  // Values in row-major order, whatever the layout.
  std::vector<double> values() const;
  // Bytes of the storage outside the view, to see that nobody wrote there; and the whole, to see that nobody wrote at
  // all.
  std::vector<unsigned char> outside() const;
  const std::vector<unsigned char>& storage() const { return *storage_; }

 private:
  std::unique_ptr<std::vector<unsigned char>> storage_;  // stays in place when the tensor is moved
  TensorView view_;
};

enum class MaskKind { all_true, right_padded, left_padded, holes, one_empty, all_empty, same_tail };
inline constexpr MaskKind kMaskKinds[] = {MaskKind::all_true, MaskKind::right_padded, MaskKind::left_padded,
                                          MaskKind::holes,    MaskKind::one_empty,    MaskKind::all_empty,
                                          MaskKind::same_tail};
std::string_view name_of(MaskKind kind);

class TestMask {
 public:
  // `strided`: every other byte of a wider, sequence-first store. Valid tokens are marked with various nonzero bytes.
  TestMask(std::int64_t batch, std::int64_t seq, MaskKind kind, Rng& rng, bool strided = false);
  const MaskView& view() const { return view_; }
  bool valid(std::int64_t b, std::int64_t s) const { return at(b, s) != 0; }
  void set(std::int64_t b, std::int64_t s, bool valid) { at(b, s) = valid; }

 private:
  std::uint8_t& at(std::int64_t b, std::int64_t s) const {
    return (*storage_)[static_cast<std::size_t>(b * view_.strides[0] + s * view_.strides[1])];
  }
  std::unique_ptr<std::vector<std::uint8_t>> storage_;
  MaskView view_;
};

// `expected` row-major, in the shape of `output`.
Verdict judge(const std::vector<double>& expected, const ConstTensorView& output, const Contract& contract);
std::string to_string(const Verdict& verdict);

// GNOMON_TEST_SEED, else a fresh one; printed, so that a failure can be repeated.
std::uint64_t test_seed();
// GNOMON_TEST_COUNT, else `usual`.
int test_count(int usual);

}  // namespace gnomon::test
