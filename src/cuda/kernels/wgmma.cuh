// Warpgroup matrix products (wgmma, sm_90a): D[64, N] += A[64, 16] * B[16, N] with A in registers, B in shared memory
// and D in registers, fp16 in and fp32 out. The 128 threads of a warpgroup issue together; the product runs
// asynchronously.
//
// Thread t of the warpgroup holds rows r = 16 * (t / 32) + t % 32 / 4 and r + 8, in each block of 8 columns the pair
// c = 2 * (t % 4), c + 1: D[4 * block + 0, 1] is row r, D[4 * block + 2, 3] row r + 8. Two neighbouring blocks of D,
// rounded to fp16 and packed in pairs, are one A operand: products chain through registers.
#pragma once

#include "wgmma_operand.cuh"

namespace gnomon::kernels {

// A warpgroup's claim on registers a thread, of those that the launch gave the block.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

namespace wgmma {

// Before the first product, and whenever other instructions wrote its registers.
__device__ __forceinline__ void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until at most kPending of the committed groups still run.
template <int kPending>
__device__ __forceinline__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Products read and write registers behind the compiler's back: it moves nothing that defines or uses these across this
// point, which stands before `begin` and after `wait`.
template <int kSize>
__device__ __forceinline__ void settle(float (&d)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kSize>
__device__ __forceinline__ void settle(u32* a) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+r"(a[i])::"memory");
}

// clang-format off
#define GNOMON_D8(C, i) C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3]), C(d[i + 4]), C(d[i + 5]), C(d[i + 6]), C(d[i + 7])
#define GNOMON_D4(C, i) C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3])
#define GNOMON_REGISTERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define GNOMON_ACCUMULATORS_8(C) GNOMON_D8(C, 0)
#define GNOMON_REGISTERS_12 GNOMON_REGISTERS_8 ", %8, %9, %10, %11"
#define GNOMON_ACCUMULATORS_12(C) GNOMON_ACCUMULATORS_8(C), GNOMON_D4(C, 8)
#define GNOMON_REGISTERS_16 GNOMON_REGISTERS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define GNOMON_ACCUMULATORS_16(C) GNOMON_ACCUMULATORS_8(C), GNOMON_D8(C, 8)
#define GNOMON_REGISTERS_20 GNOMON_REGISTERS_16 ", %16, %17, %18, %19"
#define GNOMON_ACCUMULATORS_20(C) GNOMON_ACCUMULATORS_16(C), GNOMON_D4(C, 16)
#define GNOMON_REGISTERS_24 GNOMON_REGISTERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define GNOMON_ACCUMULATORS_24(C) GNOMON_ACCUMULATORS_16(C), GNOMON_D8(C, 16)
#define GNOMON_REGISTERS_32 GNOMON_REGISTERS_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define GNOMON_ACCUMULATORS_32(C) GNOMON_ACCUMULATORS_24(C), GNOMON_D8(C, 24)
#define GNOMON_REGISTERS_36 GNOMON_REGISTERS_32 ", %32, %33, %34, %35"
#define GNOMON_ACCUMULATORS_36(C) GNOMON_ACCUMULATORS_32(C), GNOMON_D4(C, 32)
#define GNOMON_REGISTERS_40 GNOMON_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define GNOMON_ACCUMULATORS_40(C) GNOMON_ACCUMULATORS_32(C), GNOMON_D8(C, 32)
#define GNOMON_REGISTERS_48 GNOMON_REGISTERS_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define GNOMON_ACCUMULATORS_48(C) GNOMON_ACCUMULATORS_40(C), GNOMON_D8(C, 40)
#define GNOMON_REGISTERS_52 GNOMON_REGISTERS_48 ", %48, %49, %50, %51"
#define GNOMON_ACCUMULATORS_52(C) GNOMON_ACCUMULATORS_48(C), GNOMON_D4(C, 48)
#define GNOMON_REGISTERS_56 GNOMON_REGISTERS_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define GNOMON_ACCUMULATORS_56(C) GNOMON_ACCUMULATORS_48(C), GNOMON_D8(C, 48)
#define GNOMON_REGISTERS_64 GNOMON_REGISTERS_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define GNOMON_ACCUMULATORS_64(C) GNOMON_ACCUMULATORS_56(C), GNOMON_D8(C, 56)
// N, half of it, and the numbers of the operands that follow the accumulators.
#define GNOMON_MULTIPLY_INTO(C, N, HALF, A0, A1, A2, A3, B, P, T)                                           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P ", 0;\n"                                           \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" GNOMON_REGISTERS_##HALF "}, "    \
                 "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, %" #T ";\n}"                  \
                 : GNOMON_ACCUMULATORS_##HALF(C)                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(int{kAccumulate}), "n"(int{kTransposed}))
#define GNOMON_MULTIPLY(N, ...)                                                                             \
  if constexpr (kN == N && (kAccumulate || kSame)) GNOMON_MULTIPLY_INTO("+f", N, __VA_ARGS__);              \
  if constexpr (kN == N && !kAccumulate && !kSame) GNOMON_MULTIPLY_INTO("=&f", N, __VA_ARGS__)

#define GNOMON_MULTIPLY_SHARED(N, HALF, A, B, P)                                                            \
  if constexpr (kN == N)                                                                                    \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P ", 0;\n"                                           \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" GNOMON_REGISTERS_##HALF "}, "    \
                 "%" #A ", %" #B ", p, 1, 1, 0, 0;\n}"                                                      \
                 : GNOMON_ACCUMULATORS_##HALF("+f")                                                         \
                 : "l"(a), "l"(b), "n"(int{kAccumulate}))

// D += A * B, or D = A * B: then D is only written, and holds no registers before. Where the old sums are packed just
// before, the assembler packs them later and gives the new ones other registers, of which there are too few: `kSame`
// makes it take the same.
template <bool kAccumulate, bool kTransposed, bool kSame = false, int kHalf>
__device__ __forceinline__ void multiply(float (&d)[kHalf], const u32* a, u64 b) {
  constexpr int kN = 2 * kHalf;
  static_assert((kN % 16 == 0 && kN <= 128) || kN == 24 || kN == 40 || kN == 72 || kN == 104);
  GNOMON_MULTIPLY(16, 8, 8, 9, 10, 11, 12, 13, 14);
  GNOMON_MULTIPLY(24, 12, 12, 13, 14, 15, 16, 17, 18);
  GNOMON_MULTIPLY(40, 20, 20, 21, 22, 23, 24, 25, 26);
  GNOMON_MULTIPLY(72, 36, 36, 37, 38, 39, 40, 41, 42);
  GNOMON_MULTIPLY(32, 16, 16, 17, 18, 19, 20, 21, 22);
  GNOMON_MULTIPLY(48, 24, 24, 25, 26, 27, 28, 29, 30);
  GNOMON_MULTIPLY(64, 32, 32, 33, 34, 35, 36, 37, 38);
  GNOMON_MULTIPLY(80, 40, 40, 41, 42, 43, 44, 45, 46);
  GNOMON_MULTIPLY(96, 48, 48, 49, 50, 51, 52, 53, 54);
  GNOMON_MULTIPLY(104, 52, 52, 53, 54, 55, 56, 57, 58);
  GNOMON_MULTIPLY(112, 56, 56, 57, 58, 59, 60, 61, 62);
  GNOMON_MULTIPLY(128, 64, 64, 65, 66, 67, 68, 69, 70);
}

// The same with A in shared memory, its rows the M of the product.
template <bool kAccumulate, int kHalf>
__device__ __forceinline__ void multiply_shared(float (&d)[kHalf], u64 a, u64 b) {
  constexpr int kN = 2 * kHalf;
  static_assert((kN % 16 == 0 && kN <= 128) || kN == 72 || kN == 104);
  GNOMON_MULTIPLY_SHARED(16, 8, 8, 9, 10);
  GNOMON_MULTIPLY_SHARED(32, 16, 16, 17, 18);
  GNOMON_MULTIPLY_SHARED(48, 24, 24, 25, 26);
  GNOMON_MULTIPLY_SHARED(64, 32, 32, 33, 34);
  GNOMON_MULTIPLY_SHARED(72, 36, 36, 37, 38);
  GNOMON_MULTIPLY_SHARED(80, 40, 40, 41, 42);
  GNOMON_MULTIPLY_SHARED(96, 48, 48, 49, 50);
  GNOMON_MULTIPLY_SHARED(104, 52, 52, 53, 54);
  GNOMON_MULTIPLY_SHARED(112, 56, 56, 57, 58);
  GNOMON_MULTIPLY_SHARED(128, 64, 64, 65, 66);
}
#undef GNOMON_MULTIPLY
#undef GNOMON_MULTIPLY_INTO
#undef GNOMON_MULTIPLY_SHARED
#undef GNOMON_D8
#undef GNOMON_REGISTERS_8
#undef GNOMON_ACCUMULATORS_8
#undef GNOMON_REGISTERS_12
#undef GNOMON_ACCUMULATORS_12
#undef GNOMON_REGISTERS_16
#undef GNOMON_ACCUMULATORS_16
#undef GNOMON_REGISTERS_20
#undef GNOMON_ACCUMULATORS_20
#undef GNOMON_REGISTERS_24
#undef GNOMON_ACCUMULATORS_24
#undef GNOMON_REGISTERS_32
#undef GNOMON_ACCUMULATORS_32
#undef GNOMON_REGISTERS_36
#undef GNOMON_ACCUMULATORS_36
#undef GNOMON_REGISTERS_40
#undef GNOMON_ACCUMULATORS_40
#undef GNOMON_REGISTERS_48
#undef GNOMON_ACCUMULATORS_48
#undef GNOMON_REGISTERS_52
#undef GNOMON_ACCUMULATORS_52
#undef GNOMON_REGISTERS_56
#undef GNOMON_ACCUMULATORS_56
#undef GNOMON_REGISTERS_64
#undef GNOMON_ACCUMULATORS_64
// clang-format on

}  // namespace wgmma
}  // namespace gnomon::kernels
