#include "support/tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>

#include "core/half.hpp"

namespace gnomon::test {
namespace {

constexpr std::int64_t kMargin = 16;  // elements before and after the view

std::int64_t offset_of(const std::array<std::int64_t, 3>& strides, std::int64_t b, std::int64_t s, std::int64_t i) {
  return b * strides[0] + s * strides[1] + i * strides[2];
}

std::array<std::int64_t, 3> strides_of(Layout layout, const std::array<std::int64_t, 3>& shape) {
  const auto [B, S, d] = shape;
  switch (layout) {
    case Layout::contiguous:
      return {S * d, d, 1};
    case Layout::sequence_first:
      return {d, B * d, 1};
    case Layout::column_slice:
      return {S * (d + 5), d + 5, 1};
    case Layout::every_other_row:
      return {2 * S * d, 2 * d, 1};
    case Layout::every_other_column:
      return {2 * S * d, 2 * d, 2};
    case Layout::feature_major:
      return {S * d, 1, S};
    case Layout::reversed:
      return {S * d, -d, 1};
    case Layout::broadcast:
      return {0, d, 1};
  }
  return {};
}

template <typename Visit>
void for_each(const std::array<std::int64_t, 3>& shape, Visit visit) {
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t s = 0; s < shape[1]; ++s) {
      for (std::int64_t i = 0; i < shape[2]; ++i) visit(b, s, i);
    }
  }
}

template <typename T>
T load(const void* data, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void store(void* data, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

}  // namespace

double value_at(const ConstTensorView& view, std::int64_t b, std::int64_t s, std::int64_t i) {
  const std::int64_t index = offset_of(view.strides, b, s, i);
  switch (view.dtype) {
    case DType::f64:
      return load<double>(view.data, index);
    case DType::f32:
      return load<float>(view.data, index);
    case DType::f16:
      return f16_to_float(load<std::uint16_t>(view.data, index));
    case DType::bf16:
      return bf16_to_float(load<std::uint16_t>(view.data, index));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void set_value(const TensorView& view, std::int64_t b, std::int64_t s, std::int64_t i, double value) {
  const std::int64_t index = offset_of(view.strides, b, s, i);
  const auto single = static_cast<float>(value);
  switch (view.dtype) {
    case DType::f64:
      return store(view.data, index, value);
    case DType::f32:
      return store(view.data, index, single);
    case DType::f16:
      return store(view.data, index, float_to_f16(single));
    case DType::bf16:
      return store(view.data, index, float_to_bf16(single));
  }
}

ConstTensorView as_const(const TensorView& view) { return {view.data, view.dtype, view.shape, view.strides}; }

std::string_view name_of(Layout layout) {
  constexpr std::string_view kNames[] = {"contiguous",         "sequence_first", "column_slice", "every_other_row",
                                         "every_other_column", "feature_major",  "reversed",     "broadcast"};
  return kNames[static_cast<int>(layout)];
}

TestTensor::TestTensor(std::array<std::int64_t, 3> shape, DType dtype, Layout layout) {
  const auto strides = strides_of(layout, shape);
  std::int64_t lowest = 0, highest = 0;
  for (int k = 0; k < 3; ++k) {
    const std::int64_t reach = strides[k] * std::max<std::int64_t>(shape[k] - 1, 0);
    (reach < 0 ? lowest : highest) += reach;
  }
  const std::int64_t elements = highest - lowest + 1 + 2 * kMargin;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  storage_ = std::make_unique<std::vector<unsigned char>>(static_cast<std::size_t>(elements * size));
  const TensorView flat = TensorView::contiguous(storage_->data(), dtype, {1, 1, elements});
  for (std::int64_t i = 0; i < elements; ++i) set_value(flat, 0, 0, i, std::numeric_limits<double>::quiet_NaN());
  view_ = {storage_->data() + (kMargin - lowest) * size, dtype, shape, strides};
}

void TestTensor::fill_normal(Rng& rng, double scale) {
  std::normal_distribution<double> normal(0, scale);
  for_each(view_.shape, [&](auto b, auto s, auto i) { set_value(view_, b, s, i, normal(rng)); });
}

void TestTensor::fill(double value) {
  for_each(view_.shape, [&](auto b, auto s, auto i) { set_value(view_, b, s, i, value); });
}

std::vector<double> TestTensor::values() const {
  std::vector<double> result;
  for_each(view_.shape, [&](auto b, auto s, auto i) { result.push_back(value_at(const_view(), b, s, i)); });
  return result;
}

std::vector<unsigned char> TestTensor::outside() const {
  std::vector<unsigned char> rest = *storage_;
  const auto size = static_cast<std::int64_t>(size_of(view_.dtype));
  const std::int64_t base = static_cast<unsigned char*>(view_.data) - storage_->data();
  for_each(view_.shape, [&](auto b, auto s, auto i) {
    std::fill_n(rest.begin() + base + offset_of(view_.strides, b, s, i) * size, size, static_cast<unsigned char>(0));
  });
  return rest;
}

std::string_view name_of(MaskKind kind) {
  constexpr std::string_view kNames[] = {"all_true",  "right_padded", "left_padded", "holes",
                                         "one_empty", "all_empty",    "same_tail"};
  return kNames[static_cast<int>(kind)];
}

TestMask::TestMask(std::int64_t batch, std::int64_t seq, MaskKind kind, Rng& rng, bool strided) {
  storage_ =
      std::make_unique<std::vector<std::uint8_t>>(static_cast<std::size_t>(2 * batch * seq + 2), std::uint8_t{1});
  view_ = {storage_->data(), {batch, seq}, {seq, 1}};
  if (strided) view_.strides = {2, 2 * batch};
  const std::int64_t tail = (seq + 2) / 3;
  for (std::int64_t b = 0; b < batch; ++b) {
    const auto length = static_cast<std::int64_t>(1 + rng() % static_cast<std::uint64_t>(seq));
    for (std::int64_t s = 0; s < seq; ++s) {
      bool valid = true;
      switch (kind) {
        case MaskKind::all_true:
          break;
        case MaskKind::right_padded:
          valid = s < length;
          break;
        case MaskKind::left_padded:
          valid = s >= seq - length;
          break;
        case MaskKind::holes:
          valid = rng() % 3 != 0;
          break;
        case MaskKind::one_empty:
          valid = b != batch / 2;
          break;
        case MaskKind::all_empty:
          valid = false;
          break;
        case MaskKind::same_tail:
          valid = s < seq - tail;
          break;
      }
      at(b, s) = valid ? static_cast<std::uint8_t>(1 + rng() % 255) : std::uint8_t{0};
    }
  }
}

Verdict judge(const std::vector<double>& expected, const ConstTensorView& output, const Contract& contract) {
  return compare(output, ConstTensorView::contiguous(expected.data(), DType::f64, output.shape), contract);
}

std::string to_string(const Verdict& verdict) {
  return fmt::format("worst {:.3g} of the limit, {} of {} elements out of contract, first at {}: {} instead of {}{}{}",
                     verdict.worst, verdict.out_of_contract, verdict.elements, verdict.first_bad, verdict.bad_value,
                     verdict.bad_reference, verdict.fault.empty() ? "" : "; ", verdict.fault);
}

std::uint64_t test_seed() {
  const char* given = std::getenv("GNOMON_TEST_SEED");
  const std::uint64_t seed = given ? std::strtoull(given, nullptr, 0) : std::random_device{}();
  std::cout << "GNOMON_TEST_SEED=" << seed << std::endl;
  return seed;
}

int test_count(int usual) {
  const char* given = std::getenv("GNOMON_TEST_COUNT");
  return given ? std::atoi(given) : usual;
}

}  // namespace gnomon::test
