// What kernel tests compute with: 16-bit values as numbers, arrays and tensors in the memory that a kernel reads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/dtype.hpp"
#include "core/half.hpp"
#include "support/tensors.hpp"

namespace gnomon::test {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The value that a tensor of `dtype` holds in place of `value`.
inline double stored(double value, DType dtype) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::f16) return f16_to_float(float_to_f16(single));
  if (dtype == DType::bf16) return bf16_to_float(float_to_bf16(single));
  return dtype == DType::f32 ? single : value;
}

// The spacing of the type's values around `size`.
inline double unit_of(DType dtype, double size) {
  const int fraction = dtype == DType::f16 ? 10 : dtype == DType::bf16 ? 7 : 23;
  const int least = dtype == DType::f16 ? -14 : -126;
  return std::ldexp(1.0, std::max(size == 0 ? least : std::ilogb(size), least) - fraction);
}

// NaN agrees with NaN, an infinity with itself, a number with what is within `bound` of it.
inline bool near(double got, double want, double bound) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return got == want;
  return std::fabs(got - want) <= bound;
}

inline void encode(double value, DType dtype, unsigned char* to) {
  const auto put = [&](auto bits) { std::memcpy(to, &bits, sizeof bits); };
  switch (dtype) {
    case DType::f64:
      return put(value);
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::f16:
      return put(float_to_f16(static_cast<float>(value)));
    case DType::bf16:
      return put(float_to_bf16(static_cast<float>(value)));
  }
}

inline double decode(const unsigned char* from, DType dtype) {
  const auto get = [&](auto bits) {
    std::memcpy(&bits, from, sizeof bits);
    return bits;
  };
  switch (dtype) {
    case DType::f64:
      return get(double{});
    case DType::f32:
      return get(float{});
    case DType::f16:
      return f16_to_float(get(std::uint16_t{}));
    case DType::bf16:
      return bf16_to_float(get(std::uint16_t{}));
  }
  return 0;
}

inline std::vector<double> normal_values(std::int64_t n, DType dtype, Rng& rng, double scale = 1) {
  std::normal_distribution<double> normal(0, scale);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& value : values) value = stored(normal(rng), dtype);
  return values;
}

// Numbers of a type in memory between guard zones: the device's (DeviceBytes) or the emulator's (HostBytes).
template <typename Bytes>
class ArrayOf : public Bytes {
 public:
  ArrayOf(DType dtype, std::int64_t n) : Bytes(n * static_cast<std::int64_t>(size_of(dtype))), dtype_(dtype), n_(n) {}
  ArrayOf(DType dtype, const std::vector<double>& values) : ArrayOf(dtype, static_cast<std::int64_t>(values.size())) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(this->size()));
    for (std::size_t i = 0; i < values.size(); ++i) encode(values[i], dtype, bytes.data() + i * size_of(dtype));
    this->upload(bytes.data());
  }
  DType dtype() const { return dtype_; }
  std::vector<double> values() const {
    const auto bytes = this->download();
    std::vector<double> result(static_cast<std::size_t>(n_));
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = decode(bytes.data() + i * size_of(dtype_), dtype_);
    return result;
  }

 private:
  DType dtype_;
  std::int64_t n_;
};

// The storage of a TestTensor in such memory, and the view of it there.
template <typename Bytes>
class TensorOf {
 public:
  explicit TensorOf(const TestTensor& host)
      : bytes_(static_cast<std::int64_t>(host.storage().size())), view_(host.view()) {
    bytes_.upload(host.storage().data());
    offset_ = static_cast<const unsigned char*>(host.view().data) - host.storage().data();
    view_.data = bytes_.template data<unsigned char>() + offset_;
  }
  void upload(const TestTensor& host) { bytes_.upload(host.storage().data()); }  // of the same layout
  const TensorView& view() const { return view_; }
  ConstTensorView const_view() const { return as_const(view_); }
  // What the storage holds now, the view's elements in row-major order first, then whether the rest is as `before`.
  std::vector<double> values(const TestTensor& before, bool* rest_intact) const {
    const auto now = bytes_.download();
    ConstTensorView host = as_const(view_);
    host.data = now.data() + offset_;
    std::vector<double> result;
    std::vector<unsigned char> rest = before.storage(), rest_now = now;
    const auto size = static_cast<std::int64_t>(size_of(host.dtype));
    for (std::int64_t b = 0; b < host.shape[0]; ++b) {
      for (std::int64_t s = 0; s < host.shape[1]; ++s) {
        for (std::int64_t i = 0; i < host.shape[2]; ++i) {
          result.push_back(value_at(host, b, s, i));
          const std::int64_t at = offset_ + (b * host.strides[0] + s * host.strides[1] + i * host.strides[2]) * size;
          for (std::int64_t k = 0; k < size; ++k)
            rest[static_cast<std::size_t>(at + k)] = rest_now[static_cast<std::size_t>(at + k)] = 0;
        }
      }
    }
    *rest_intact = rest == rest_now && bytes_.guards_intact();
    return result;
  }

 private:
  Bytes bytes_;
  TensorView view_;
  std::int64_t offset_;
};

}  // namespace gnomon::test
