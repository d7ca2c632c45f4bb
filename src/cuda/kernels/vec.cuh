// N adjacent elements as one memory access (at most 16 bytes), and the strided rows of the caller's tensors.
#pragma once

#include "half.cuh"

namespace gnomon::kernels {

template <typename T, int kN>
struct alignas(sizeof(T) * kN > 16 ? 16 : sizeof(T) * kN) Vec {
  T at[kN];
};

// As one access. A struct's members are read one by one where the compiler finds that the simpler; a built-in vector is
// not taken apart.
template <int kBytes>
struct Word {
  using type = u16;
};
template <>
struct Word<1> {
  using type = u8;
};
template <>
struct Word<4> {
  using type = u32;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};
template <typename T, int kN>
__device__ __forceinline__ Vec<T, kN> load_vec(const T* from) {
  using Access = typename Word<alignof(Vec<T, kN>)>::type;
  Vec<T, kN> v;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof v / sizeof(Access)); ++i)
    reinterpret_cast<Access*>(&v)[i] = reinterpret_cast<const Access*>(from)[i];
  return v;
}

template <typename T, int kN>
__device__ __forceinline__ void to_floats(float (&to)[kN], const Vec<T, kN>& from) {
#pragma unroll
  for (int i = 0; i < kN; ++i) to[i] = to_float(from.at[i]);
}

template <typename T, int kN>
__device__ __forceinline__ void load_floats(float (&to)[kN], const T* from) {
  to_floats(to, load_vec<T, kN>(from));
}

template <typename T, int kN>
__device__ __forceinline__ void store_floats(T* to, const float (&from)[kN]) {
  Vec<T, kN> v;
#pragma unroll
  for (int i = 0; i < kN; ++i) v.at[i] = from_float<T>(from[i]);
  *reinterpret_cast<Vec<T, kN>*>(to) = v;
}

// Of a row whose elements lie `element` apart; kN > 1 asks for adjacent ones.
template <typename T, int kN>
__device__ __forceinline__ Vec<T, kN> load_strided(const T* row, int column, i64 element) {
  return load_vec<T, kN>(row + (kN > 1 ? column : column * element));
}

__device__ __forceinline__ i64 row_offset(const RowStrides& s, i64 row) {
  if (row < s.seq) return row * s.token;
  const i64 b = row / s.seq;
  return b * s.sequence + (row - b * s.seq) * s.token;
}

__device__ __forceinline__ bool is_valid(const MaskBytes& m, i64 b, i64 token) {
  return !m.data || m.data[b * m.sequence + token * m.token] != 0;
}
__device__ __forceinline__ bool is_valid(const MaskBytes& m, i64 row) {
  const i64 b = m.data ? row / m.seq : 0;
  return is_valid(m, b, row - b * m.seq);
}

// Sets a bit of a flag word. A look first: where every row raises it, a million atomics at one address would take
// turns.
__device__ __forceinline__ void raise(u32* flags, CallFlag flag) {
  if (!(*static_cast<volatile u32*>(flags) & flag)) atomicOr(flags, flag);
}

}  // namespace gnomon::kernels
