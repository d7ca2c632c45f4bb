#include "core/contract.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.hpp"
#include "core/half.hpp"

namespace gnomon {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kBlock = 2048;  // elements; both sides of a block stay in the first-level cache

// The spacing of the stored type's values at r, halved; a type's least normal exponent bounds it from below.
struct StoredType {
  int fraction_bits, least_exponent;
  // half_step(r) >= scan_slack * |r|, which the vector scan can afford to take off.
  double scan_slack() const { return fraction_bits ? std::ldexp(1.0, -fraction_bits - 2) : 0; }
  double half_step(double r) const {
    if (!fraction_bits || !std::isfinite(r)) return 0;
    const int exponent = r == 0 ? least_exponent : std::max(std::ilogb(r), least_exponent);
    return std::ldexp(0.5, exponent - fraction_bits);
  }
};

StoredType stored_type(DType dtype) {
  if (dtype == DType::f16) return {10, -14};
  if (dtype == DType::bf16) return {7, -126};
  return {0, 0};
}

class Comparison {
 public:
  Comparison(const Contract& contract, DType stored) : contract_(contract), stored_(stored_type(stored)) {}

  void block(const double* u, const double* r, std::int64_t n) {
    exactly(u, r, n);
    verdict_.elements += n;
  }

  void block(const float* u, const float* r, std::int64_t n) {
    if (may_matter(u, r, n)) exactly(u, r, n);
    verdict_.elements += n;
  }

  Verdict verdict() const { return verdict_; }

 private:
  // False when no element of the block can change the verdict: every term is at most what has been seen, and none is
  // out of contract. One multiplication in place of the division, and no branch, so that it vectorises; the threshold
  // is lowered by more than the products' rounding. Anything not finite makes the comparison false, and so matters.
  bool may_matter(const float* u, const float* r, std::int64_t n) const {
    constexpr double largest = std::numeric_limits<double>::max();
    const double threshold = std::min(verdict_.worst, 1.0) * (1 - 0x1p-50);
    const double floor = threshold * contract_.abs, slope = threshold * contract_.rel;
    const double slack = stored_.scan_slack() * (1 - 0x1p-50);
    std::int64_t harmless = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double ri = r[i], size = std::fabs(ri), by_rel = slope * size;
      const double difference = std::fabs(static_cast<double>(u[i]) - ri) - slack * size;
      const double bound = floor > by_rel ? floor : by_rel;
      harmless += (difference <= bound) & (size <= largest);
    }
    return harmless != n;
  }

  template <typename T>
  void exactly(const T* u, const T* r, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const double term = term_of(u[i], r[i]);
      if (term > verdict_.worst) verdict_.worst = term;
      if (term <= 1) continue;
      if (verdict_.out_of_contract++ == 0) {
        verdict_.first_bad = verdict_.elements + i;
        verdict_.bad_value = u[i];
        verdict_.bad_reference = r[i];
      }
    }
  }

  double term_of(double u, double r) const {
    if (u == r) return 0;
    if (std::isnan(r)) return std::isnan(u) ? 0 : kInfinity;
    if (!std::isfinite(u) || !std::isfinite(r)) return kInfinity;
    const double difference = std::fabs(u - r) - stored_.half_step(r);
    if (difference <= 0) return 0;
    // min(a/x, a/y) = a/max(x, y), rounding included.
    return difference / std::max(contract_.abs, contract_.rel * std::fabs(r));
  }

  Contract contract_;
  StoredType stored_;
  Verdict verdict_;
};

template <typename Stored>
Stored load(const void* data, std::int64_t element) {
  Stored value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + element * static_cast<std::int64_t>(sizeof(Stored)),
              sizeof(Stored));
  return value;
}

// Copies n elements, `stride` apart, of the view's type into a dense run of T.
template <typename T>
void gather(const ConstTensorView& view, std::int64_t offset, std::int64_t stride, std::int64_t n, T* out) {
  const auto each = [&](auto value_at) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(value_at(offset + i * stride));
  };
  switch (view.dtype) {
    case DType::f32:
      return each([&](std::int64_t at) { return load<float>(view.data, at); });
    case DType::f64:
      return each([&](std::int64_t at) { return load<double>(view.data, at); });
    case DType::f16:
      return each([&](std::int64_t at) { return f16_to_float(load<std::uint16_t>(view.data, at)); });
    case DType::bf16:
      return each([&](std::int64_t at) { return bf16_to_float(load<std::uint16_t>(view.data, at)); });
  }
  throw_internal("element type {} is unknown", static_cast<int>(view.dtype));
}

bool is_contiguous(const ConstTensorView& view) {
  return view.strides == ConstTensorView::contiguous(view.data, view.dtype, view.shape).strides;
}

bool is_plain_f32(const ConstTensorView& view) {
  return view.dtype == DType::f32 && is_contiguous(view) &&
         reinterpret_cast<std::uintptr_t>(view.data) % alignof(float) == 0;
}

template <typename T>
void compare_rows(const ConstTensorView& u, const ConstTensorView& r, Comparison& comparison) {
  std::array<T, kBlock> u_block, r_block;
  for (std::int64_t row = 0; row < u.shape[0] * u.shape[1]; ++row) {
    const std::int64_t b = row / u.shape[1], s = row % u.shape[1];
    for (std::int64_t column = 0; column < u.shape[2]; column += kBlock) {
      const std::int64_t n = std::min(kBlock, u.shape[2] - column);
      gather(u, b * u.strides[0] + s * u.strides[1] + column * u.strides[2], u.strides[2], n, u_block.data());
      gather(r, b * r.strides[0] + s * r.strides[1] + column * r.strides[2], r.strides[2], n, r_block.data());
      comparison.block(u_block.data(), r_block.data(), n);
    }
  }
}

}  // namespace

Verdict compare(const ConstTensorView& u, const ConstTensorView& r, const Contract& contract) {
  if (u.shape != r.shape) {
    throw_caller("compare: expected two tensors of one shape, got [{}, {}, {}] and [{}, {}, {}]", u.shape[0],
                 u.shape[1], u.shape[2], r.shape[0], r.shape[1], r.shape[2]);
  }
  Comparison comparison(contract, u.dtype);
  if (is_plain_f32(u) && is_plain_f32(r)) {
    const auto* u_data = static_cast<const float*>(u.data);
    const auto* r_data = static_cast<const float*>(r.data);
    for (std::int64_t at = 0; at < u.elements(); at += kBlock) {
      comparison.block(u_data + at, r_data + at, std::min(kBlock, u.elements() - at));
    }
  } else if (u.dtype == DType::f64 || r.dtype == DType::f64) {
    compare_rows<double>(u, r, comparison);
  } else {
    compare_rows<float>(u, r, comparison);
  }
  return comparison.verdict();
}

}  // namespace gnomon
