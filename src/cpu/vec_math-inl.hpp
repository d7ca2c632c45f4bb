// exp2 and the activations on Highway vectors. Included once per instruction set (no include guard in the usual sense).
#if defined(GNOMON_CPU_VEC_MATH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef GNOMON_CPU_VEC_MATH_INL
#undef GNOMON_CPU_VEC_MATH_INL
#else
#define GNOMON_CPU_VEC_MATH_INL
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gnomon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V polynomial(D d, V t, const float* c, int degree) {
  V r = hn::Set(d, c[degree]);
  for (int i = degree - 1; i >= 0; --i) r = hn::MulAdd(r, t, hn::Set(d, c[i]));
  return r;
}

// 2^x for x <= 0 (softmax subtracts the maximum first). Below -127 the result is exactly 0, so a masked score of -inf
// weighs nothing; NaN stays NaN. Relative error 1e-7: minimax polynomial of degree 5 on [-0.5, 0.5].
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2_nonpositive(D d, V x) {
  static constexpr float c[] = {1.0000000716556843f,  0.6931469670614552f,   0.24022119718828194f,
                                0.05550713276450948f, 0.009675541607716179f, 0.0013276471811121925f};
  const hn::RebindToSigned<D> di;
  // x is the second operand: x86's max returns it when either is NaN.
  const V clamped = hn::Max(hn::Set(d, -127.0f), x);
  const V whole = hn::Round(clamped);
  const V fraction = hn::Sub(clamped, whole);
  const V mantissa = polynomial(d, fraction, c, 5);
  // 2^whole by its bits; whole = -127 makes the bits of 0.0.
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, whole), hn::Set(di, 127)));
  return hn::Mul(mantissa, hn::BitCast(d, exponent));
}

// x * Phi(x), Phi the normal distribution function: Phi(x) - 1/2 = x * P(x^2)/Q(x^2), our own minimax fit on |x| <= 5.5
// (error 7e-9 in exact arithmetic); beyond, Phi is 0 or 1 to fp32 precision.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_erf(D d, V x) {
  static constexpr float p[] = {0.3989422348087147f,    0.03385082948482642f,   0.0046771258476732925f,
                                0.0001688039363126083f, 6.351683662474995e-06f, 2.2749076458143235e-08f};
  static constexpr float q[] = {1.0f,
                                0.2515173672158726f,
                                0.02864477103071846f,
                                0.001884323577919187f,
                                7.363901621415731e-05f,
                                1.1974631013311162e-06f};
  const V clamped = hn::Max(hn::Set(d, -5.5f), hn::Min(hn::Set(d, 5.5f), x));
  const V t = hn::Mul(clamped, clamped);
  const V ratio = hn::Div(hn::Mul(clamped, polynomial(d, t, p, 5)), polynomial(d, t, q, 5));
  return hn::Mul(x, hn::Add(ratio, hn::Set(d, 0.5f)));
}

// x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3): the tanh form, since (1 + tanh u)/2 = sigmoid(2u).
// exp2 is taken of -|2u| log2(e), which is never positive.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh(D d, V x) {
  constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
  constexpr float kLog2E = 1.4426950408889634f;
  const V cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715f), hn::Set(d, 1.0f));
  const V z = hn::Mul(hn::Mul(x, cubic), hn::Set(d, kTwoRootTwoOverPi * kLog2E));
  const V e = exp2_nonpositive(d, hn::Neg(hn::Abs(z)));
  const V one = hn::Set(d, 1.0f);
  const V numerator = hn::IfThenElse(hn::Lt(z, hn::Zero(d)), e, one);  // sigmoid(z) = 1/(1+e^-z) = e^z/(1+e^z)
  return hn::Mul(x, hn::Div(numerator, hn::Add(one, e)));  // -inf * 0: NaN, as in PyTorch and in oneDNN's epilogue
}

}  // namespace gnomon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
