#include "cpu/vec_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "core/error.hpp"
#include "core/half.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vec_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "cpu/attention-inl.hpp"
#include "cpu/vec_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gnomon::cpu::HWY_NAMESPACE {

// Applies `f` to n floats; the tail goes through a padded vector, so that every element gets the same arithmetic.
template <class F>
HWY_INLINE void map(const float* x, float* y, std::int64_t n, F f) {
  const DF d;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(f(hn::LoadU(d, x + i)), d, y + i);
  if (i == n) return;
  HWY_ALIGN float buffer[kLanes] = {};
  std::copy(x + i, x + n, buffer);
  hn::Store(f(hn::Load(d, buffer)), d, buffer);
  std::copy(buffer, buffer + (n - i), y + i);
}

// Sum of f(x) over a row.
template <class F>
HWY_INLINE float sum_of(const float* x, std::int64_t n, F f) {
  const DF d;
  VF even = hn::Zero(d), odd = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    even = hn::Add(even, f(hn::LoadU(d, x + i)));
    odd = hn::Add(odd, f(hn::LoadU(d, x + i + kLanes)));
  }
  for (; i + kLanes <= n; i += kLanes) even = hn::Add(even, f(hn::LoadU(d, x + i)));
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  if (i < n) {
    HWY_ALIGN float buffer[kLanes];
    for (std::int64_t l = 0; l < kLanes; ++l) buffer[l] = i + l < n ? x[i + l] : 0.0f;
    const auto tail = hn::FirstN(d, static_cast<std::size_t>(n - i));
    sum += hn::GetLane(hn::SumOfLanes(d, hn::IfThenElseZero(tail, f(hn::Load(d, buffer)))));
  }
  return sum;
}

void layer_norm(const float* x, std::int64_t ldx, float* y, std::int64_t ldy, std::int64_t rows, std::int64_t n,
                const float* weight, const float* bias, float eps) {
  const DF d;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * ldx;
    float* out = y + r * ldy;
    const float mean = sum_of(in, n, [](VF v) { return v; }) / static_cast<float>(n);
    const VF m = hn::Set(d, mean);
    const float variance = sum_of(in, n,
                                  [m](VF v) {
                                    const VF c = hn::Sub(v, m);
                                    return hn::Mul(c, c);
                                  }) /
                           static_cast<float>(n);
    const float inverse = 1.0f / std::sqrt(variance + eps);
    const VF s = hn::Set(d, inverse);
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const VF w = hn::LoadU(d, weight + i);
      const VF b = bias ? hn::LoadU(d, bias + i) : hn::Zero(d);
      hn::StoreU(hn::MulAdd(hn::Mul(hn::Sub(hn::LoadU(d, in + i), m), s), w, b), d, out + i);
    }
    for (; i < n; ++i) out[i] = std::fma((in[i] - mean) * inverse, weight[i], bias ? bias[i] : 0.0f);
  }
}

void add(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* y, std::int64_t ldy,
         std::int64_t rows, std::int64_t n) {
  const DF d;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* ra = a + r * lda;
    const float* rb = b + r * ldb;
    float* out = y + r * ldy;
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Add(hn::LoadU(d, ra + i), hn::LoadU(d, rb + i)), d, out + i);
    for (; i < n; ++i) out[i] = ra[i] + rb[i];
  }
}

void gelu_erf_all(const float* x, float* y, std::int64_t n) {
  map(x, y, n, [](VF v) { return gelu_erf(DF(), v); });
}
void gelu_tanh_all(const float* x, float* y, std::int64_t n) {
  map(x, y, n, [](VF v) { return gelu_tanh(DF(), v); });
}
void relu_all(const float* x, float* y, std::int64_t n) {
  // x is the second operand of Max so that NaN stays NaN on x86.
  map(x, y, n, [](VF v) { return hn::Max(hn::Zero(DF()), v); });
}
void scale_all(const float* x, float* y, std::int64_t n, float factor) {
  map(x, y, n, [factor](VF v) { return hn::Mul(v, hn::Set(DF(), factor)); });
}

void softmax(const float* x, std::int64_t ldx, float* y, std::int64_t ldy, std::int64_t rows, std::int64_t n) {
  const DF d;
  constexpr float kLog2E = 1.4426950408889634f;
  const VF minus_inf = hn::Set(d, -HUGE_VALF);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * ldx;
    float* out = y + r * ldy;
    VF m = minus_inf;
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) m = hn::Max(m, hn::LoadU(d, in + i));
    float maximum = hn::GetLane(hn::MaxOfLanes(d, m));
    for (; i < n; ++i) maximum = std::max(maximum, in[i]);
    maximum = std::max(maximum, std::numeric_limits<float>::lowest());
    const VF shift = hn::Set(d, maximum);
    map(in, out, n, [=](VF v) { return exp2_nonpositive(DF(), hn::Mul(hn::Sub(v, shift), hn::Set(DF(), kLog2E))); });
    const float sum = sum_of(out, n, [](VF v) { return v; });
    const VF inverse = hn::Set(d, sum == 0.0f ? 0.0f : 1.0f / sum);
    map(out, out, n, [inverse](VF v) { return hn::Mul(v, inverse); });
  }
}

template <class Narrow>
HWY_INLINE void widen(const std::uint16_t* x, float* y, std::int64_t n) {
  const DF d;
  const hn::Rebind<Narrow, DF> dn;
  const auto* in = reinterpret_cast<const Narrow*>(x);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::PromoteTo(d, hn::LoadU(dn, in + i)), d, y + i);
  if (i == n) return;
  Narrow padded[kLanes] = {};
  std::copy(in + i, in + n, padded);
  HWY_ALIGN float wide[kLanes];
  hn::Store(hn::PromoteTo(d, hn::LoadU(dn, padded)), d, wide);
  std::copy(wide, wide + (n - i), y + i);
}

// Below AVX2 there is no instruction for fp16, and Highway 1.0's substitute truncates and knows no NaN or infinity.
constexpr bool kHasF16 = !HWY_ARCH_X86 || HWY_TARGET <= HWY_AVX2;

void from_f16(const std::uint16_t* x, float* y, std::int64_t n) {
  if constexpr (kHasF16)
    widen<hwy::float16_t>(x, y, n);
  else
    std::transform(x, x + n, y, f16_to_float);
}
void from_bf16(const std::uint16_t* x, float* y, std::int64_t n) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<std::uint16_t, DF> dn;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dn, x + i)))), d, y + i);
  }
  for (; i < n; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(x[i]) << 16;
    std::memcpy(y + i, &bits, sizeof bits);
  }
}

void to_f16(const float* x, std::uint16_t* y, std::int64_t n) {
  if constexpr (!kHasF16) {
    std::transform(x, x + n, y, float_to_f16);
    return;
  }
  const DF d;
  const hn::Rebind<hwy::float16_t, DF> dn;
  auto* out = reinterpret_cast<hwy::float16_t*>(y);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::DemoteTo(dn, hn::LoadU(d, x + i)), dn, out + i);
  if (i == n) return;
  HWY_ALIGN float wide[kLanes] = {};
  std::copy(x + i, x + n, wide);
  hwy::float16_t narrow[kLanes];
  hn::StoreU(hn::DemoteTo(dn, hn::Load(d, wide)), dn, narrow);
  std::copy(narrow, narrow + (n - i), out + i);
}

// Highway 1.0's DemoteTo truncates bf16; this rounds to nearest even: add 0x7fff plus the lowest kept bit, keep the
// upper half.
void to_bf16(const float* x, std::uint16_t* y, std::int64_t n) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<std::uint16_t, DF> dn;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<std::int16_t, DF> dni;
  const auto rounded = [&](VF v) {
    const auto bits = hn::BitCast(du, v);
    const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto sum = hn::Add(bits, hn::Add(even, hn::Set(du, 0x7fffu)));
    const auto nan = hn::Or(bits, hn::Set(du, 0x400000u));
    const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, sum);
    // An arithmetic shift keeps the value in int16's range, so that the saturating demotion is exact.
    return hn::DemoteTo(dni, hn::ShiftRight<16>(hn::BitCast(di, chosen)));
  };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::BitCast(dn, rounded(hn::LoadU(d, x + i))), dn, y + i);
  if (i == n) return;
  HWY_ALIGN float wide[kLanes] = {};
  std::copy(x + i, x + n, wide);
  std::uint16_t narrow[kLanes];
  hn::StoreU(hn::BitCast(dn, rounded(hn::Load(d, wide))), dn, narrow);
  std::copy(narrow, narrow + (n - i), y + i);
}

float row_rms(const float* x, std::int64_t n) {
  return std::sqrt(sum_of(x, n, [](VF v) { return hn::Mul(v, v); }) / static_cast<float>(n));
}

float max_abs_finite(const float* x, std::int64_t n, bool* all_finite) {
  const DF d;
  VF largest = hn::Zero(d);
  auto finite = hn::MaskFromVec(hn::BitCast(d, hn::Set(hn::RebindToUnsigned<DF>(), 0xffffffffu)));
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const VF v = hn::LoadU(d, x + i);
    const auto ok = hn::IsFinite(v);
    finite = hn::And(finite, ok);
    largest = hn::Max(largest, hn::IfThenElseZero(ok, hn::Abs(v)));
  }
  float maximum = hn::GetLane(hn::MaxOfLanes(d, largest));
  bool all = hn::AllTrue(d, finite);
  for (; i < n; ++i) {
    if (std::isfinite(x[i]))
      maximum = std::max(maximum, std::fabs(x[i]));
    else
      all = false;
  }
  *all_finite = all;
  return maximum;
}

const VecKernels* table() {
  static const VecKernels kernels = {
      .isa = hwy::TargetName(HWY_TARGET),
      .lanes = kLanes,
      .head_attention_scratch = &head_attention_scratch,
      .head_attention = &head_attention,
      .layer_norm = &layer_norm,
      .add = &add,
      .gelu_erf = &gelu_erf_all,
      .gelu_tanh = &gelu_tanh_all,
      .relu = &relu_all,
      .scale = &scale_all,
      .softmax = &softmax,
      .from_f16 = &from_f16,
      .from_bf16 = &from_bf16,
      .to_f16 = &to_f16,
      .to_bf16 = &to_bf16,
      .row_rms = &row_rms,
      .max_abs_finite = &max_abs_finite,
  };
  return &kernels;
}

}  // namespace gnomon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gnomon::cpu {

HWY_EXPORT(table);

namespace {

// The Highway targets that a name of GNOMON_ISA stands for.
std::int64_t targets_named(std::string_view name) {
  if (name == "sse4") return HWY_SSE4;
  if (name == "avx2") return HWY_AVX2;
  if (name == "avx512") return HWY_AVX3 | HWY_AVX3_DL;
  if (name == "neon") return HWY_NEON;
  throw_caller("GNOMON_ISA: expected sse4, avx2, avx512 or neon, got '{}'", name);
}

const VecKernels* choose() {
  if (const char* name = std::getenv("GNOMON_ISA"); name && *name) {
    const std::int64_t wanted = targets_named(name);
    if ((hwy::SupportedTargets() & wanted & HWY_TARGETS) == 0) {
      throw_environment(
          "GNOMON_ISA={}: this machine or build does not have it; unset the variable to use the best there is", name);
    }
    hwy::DisableTargets(~wanted);
  }
  return HWY_DYNAMIC_DISPATCH(table)();
}

}  // namespace

const VecKernels& vec_kernels() {
  static const VecKernels* const chosen = choose();
  return *chosen;
}

}  // namespace gnomon::cpu
#endif  // HWY_ONCE
