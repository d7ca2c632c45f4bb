#include "cuda/judge.hpp"

#include <algorithm>
#include <bit>

#include "core/error.hpp"
#include "cuda/instantiate.hpp"
#include "cuda/rows.hpp"

namespace gnomon::cuda {
namespace {

constexpr int kThreads = 256;  // judge.cuh: kJudgeThreads

CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

LaunchShape spread(const KernelLibrary& library, std::int64_t n) {
  const std::int64_t filling = std::int64_t{16} * library.device().properties().multiprocessors;
  return {.blocks = std::clamp<std::int64_t>((n + kThreads - 1) / kThreads, 1, filling), .threads = kThreads};
}

}  // namespace

Verdict compare(KernelLibrary& library, CUstream stream, const ConstTensorView& u, const ConstTensorView& r,
                const Contract& contract, void* scratch) {
  if (u.shape != r.shape) {
    throw_caller("compare: expected two tensors of one shape, got [{}, {}, {}] and [{}, {}, {}]", u.shape[0],
                 u.shape[1], u.shape[2], r.shape[0], r.shape[1], r.shape[2]);
  }
  Verdict verdict;
  verdict.elements = u.elements();
  if (verdict.elements == 0) return verdict;
  kernels::Compare p{.u = u.data,
                     .r = r.data,
                     .u_strides = row_access(u).strides,
                     .r_strides = row_access(r).strides,
                     .rows = u.shape[0] * u.shape[1],
                     .width = u.shape[2],
                     .abs = contract.abs,
                     .rel = contract.rel,
                     .result = static_cast<kernels::Comparison*>(scratch)};
  const auto contiguous = [&](const kernels::RowStrides& s) {
    return s.seq == p.rows && s.token == p.width && s.element == 1;
  };
  if (contiguous(p.u_strides) && contiguous(p.r_strides)) p.width = std::exchange(p.rows, 1) * p.width;
  kernels::Comparison result{.first_bad = ~kernels::u64{0}};
  check(driver().cuMemcpyHtoDAsync(address(scratch), &result, sizeof result, stream), "cuMemcpyHtoDAsync");
  library.get(instantiate("judge.cuh", "compare", u.dtype, r.dtype))
      .launch(stream, spread(library, verdict.elements), p);
  library.get(instantiate("judge.cuh", "fetch_first_bad", u.dtype, r.dtype))
      .launch(stream, LaunchShape{.blocks = 1, .threads = 1}, p);
  check(driver().cuMemcpyDtoHAsync(&result, address(scratch), sizeof result, stream), "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  verdict.worst = std::bit_cast<double>(result.worst);
  verdict.out_of_contract = static_cast<std::int64_t>(result.out_of_contract);
  verdict.first_bad = static_cast<std::int64_t>(result.first_bad);  // all ones is -1
  if (verdict.first_bad >= 0) verdict.bad_value = result.bad_value, verdict.bad_reference = result.bad_reference;
  return verdict;
}

void fill_pattern(CUstream stream, void* words, std::int64_t n, std::uint32_t pattern) {
  if (n == 0) return;
  check(driver().cuMemsetD32Async(address(words), pattern, static_cast<std::size_t>(n), stream), "cuMemsetD32Async");
}

std::int64_t changed_words(KernelLibrary& library, CUstream stream, const void* words, std::int64_t n,
                           std::uint32_t pattern, void* scratch) {
  const kernels::CheckPattern p{static_cast<const kernels::u32*>(words), n, pattern,
                                static_cast<kernels::u64*>(scratch)};
  kernels::u64 changed = 0;
  check(driver().cuMemsetD8Async(address(scratch), 0, sizeof changed, stream), "cuMemsetD8Async");
  library.get(instantiate("judge.cuh", "check_pattern", kThreads)).launch(stream, spread(library, n), p);
  check(driver().cuMemcpyDtoHAsync(&changed, address(scratch), sizeof changed, stream), "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  return static_cast<std::int64_t>(changed);
}

}  // namespace gnomon::cuda
