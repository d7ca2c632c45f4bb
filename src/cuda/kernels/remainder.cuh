// What a 16-bit number leaves of the fp32 number that it was rounded from, in a byte: 256ths of the unit in its last
// place, with 128 for none. Together they keep 19 significant bits with fp16, 16 with bf16; a subnormal keeps what the
// type alone has. Rows whose 16-bit copy the products need anyway so take three bytes an element in place of six.
#pragma once

#include "half.cuh"

namespace gnomon::kernels {

template <typename T>
constexpr float kPartsOfOne = 1 << ((same_type<T, f16> ? 10 : 7) + 8);  // of a number between 1 and 2

constexpr u32 kExponentBits = 0x7f800000;
// A float of this size has units of one, so that its last byte counts them: no conversion to or from an integer, of
// which a multiprocessor makes 16 in a clock.
constexpr float kByteOfFloat = 8388608.0f;  // 2^23
constexpr u32 kByteOfFloatBits = 0x4b000000;

template <typename T>
__device__ __forceinline__ u8 remainder_of(float x, T narrow) {
  const float near = to_float(narrow);
  const float inverse = __uint_as_float((254u << 23) - (__float_as_uint(near) & kExponentBits));
  const float parts = fminf(fmaxf((x - near) * (inverse * kPartsOfOne<T>), -128.0f), 127.0f);
  return static_cast<u8>(__float_as_uint(parts + (kByteOfFloat + 128.0f)));
}

// What is not finite stays so.
template <typename T>
__device__ __forceinline__ float with_remainder(T narrow, u8 remainder) {
  const float near = to_float(narrow), parts = __uint_as_float(kByteOfFloatBits | remainder) - (kByteOfFloat + 128.0f);
  const float power = __uint_as_float(__float_as_uint(near) & kExponentBits);
  return near + parts * (power * (1 / kPartsOfOne<T>));
}

}  // namespace gnomon::kernels
