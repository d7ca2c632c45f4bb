#include "cuda/product.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace gnomon::cuda {
namespace {

constexpr int kMostSuggestions = 8;  // it never had more, asked for forty

int data_type(DType type) {
  switch (type) {
    case DType::f32:
      return lt::r_32f;
    case DType::f16:
      return lt::r_16f;
    case DType::bf16:
      return lt::r_16bf;
    case DType::f64:
      break;
  }
  throw_internal("no products of {}", name_of(type));
}

int epilogue_of(const ProductSpec& spec) {
  switch (spec.epilogue) {
    case Epilogue::none:
      return spec.bias ? lt::epilogue_bias : lt::epilogue_default;
    case Epilogue::relu:
      return spec.bias ? lt::epilogue_relu_bias : lt::epilogue_relu;
    case Epilogue::gelu_tanh:
      return spec.bias ? lt::epilogue_gelu_bias : lt::epilogue_gelu;
  }
  throw_internal("epilogue {} is unknown", static_cast<int>(spec.epilogue));
}

template <typename T>
void set(lt::Desc desc, int attribute, const T& value) {
  check_lt(cublaslt().desc_set(desc, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}

// The library thinks in columns: our rows are its columns, so it computes y^T = w * x^T with y^T [out, rows].
lt::Layout layout(DType type, std::int64_t rows, std::int64_t columns, std::int64_t leading, std::int64_t batch,
                  std::int64_t step) {
  lt::Layout made = nullptr;
  check_lt(cublaslt().layout_create(&made, data_type(type), static_cast<std::uint64_t>(columns),
                                    static_cast<std::uint64_t>(rows), leading),
           "cublasLtMatrixLayoutCreate");
  if (batch > 1) {
    const auto count = static_cast<std::int32_t>(batch);
    cublaslt().layout_set(made, lt::layout_batch_count, &count, sizeof count);
    cublaslt().layout_set(made, lt::layout_batch_stride, &step, sizeof step);
  }
  return made;
}

// Of addresses whose rows start this many bytes apart, the base being that of an allocation.
std::uint32_t alignment(std::int64_t leading, std::int64_t step, DType type) {
  const std::int64_t bytes = (leading | step) * static_cast<std::int64_t>(size_of(type));
  return static_cast<std::uint32_t>(std::min<std::int64_t>(bytes & -bytes, 256));
}

}  // namespace

Product::Product(const BlasHandle& handle, const ProductSpec& spec, int choice) : handle_(handle.get()), spec_(spec) {
  lt::Desc desc = nullptr;
  check_lt(cublaslt().desc_create(&desc, spec.tf32 ? lt::compute_32f_fast_tf32 : lt::compute_32f, lt::r_32f),
           "cublasLtMatmulDescCreate");
  desc_.reset(desc);
  set(desc, lt::desc_transa, static_cast<std::int32_t>(spec.w_transposed ? lt::op_t : lt::op_n));
  set(desc, lt::desc_transb, static_cast<std::int32_t>(lt::op_n));
  set(desc, lt::desc_epilogue, static_cast<std::int32_t>(epilogue_of(spec)));
  if (spec.bias) {
    set(desc, lt::desc_bias_pointer, spec.bias);
    set(desc, lt::desc_bias_type, static_cast<std::int32_t>(data_type(spec.result)));
  }
  x_.reset(layout(spec.type, spec.rows, spec.in, spec.ldx, spec.batch, spec.x_step));
  const std::int64_t w_rows = spec.w_transposed ? spec.out : spec.in,
                     w_columns = spec.w_transposed ? spec.in : spec.out;
  w_.reset(layout(spec.type, w_rows, w_columns, spec.ldw, spec.batch, spec.w_step));
  y_.reset(layout(spec.result, spec.rows, spec.out, spec.ldy, spec.batch, spec.y_step));
  suggest(choice);
}

std::vector<lt::HeuristicResult> Product::suggestions(std::size_t most_workspace) const {
  const CublasLt& api = cublaslt();
  lt::Preference preference = nullptr;
  check_lt(api.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](int attribute, auto value) {
    api.preference_set(preference, attribute, &value, sizeof value);
  };
  prefer(lt::preference_workspace, std::uint64_t{most_workspace});
  prefer(lt::preference_alignment_a, alignment(spec_.ldw, spec_.w_step, spec_.type));
  prefer(lt::preference_alignment_b, alignment(spec_.ldx, spec_.x_step, spec_.type));
  prefer(lt::preference_alignment_c, alignment(spec_.ldy, spec_.y_step, spec_.result));
  prefer(lt::preference_alignment_d, alignment(spec_.ldy, spec_.y_step, spec_.result));
  std::vector<lt::HeuristicResult> results(kMostSuggestions);
  int found = 0;
  const int status = api.heuristics(handle_, desc_.get(), w_.get(), x_.get(), y_.get(), y_.get(), preference,
                                    kMostSuggestions, results.data(), &found);
  api.preference_destroy(preference);
  if (status != lt::success && status != lt::not_supported) check_lt(status, "cublasLtMatmulAlgoGetHeuristic");
  results.resize(static_cast<std::size_t>(found));
  std::erase_if(results, [](const lt::HeuristicResult& one) { return one.state != lt::success; });
  return results;
}

// Those without workspace come first. Given one, the same kernels count their tiles in it, and a memset clears the
// counter ahead of every product: 1.5 to 2 us on an H200. Of those with workspace only the ones that need it for more
// are others: they split the sum. In fp32 a product takes longer than any counter, and the first guess without
// workspace is a worse one: the plain path, which takes no other, took 15 % longer by it at shape 10.
void Product::suggest(int choice) {
  constexpr std::size_t kCounters = 1024;
  const bool best_guesses = spec_.type == DType::f32;
  std::vector<lt::HeuristicResult> results = suggestions(best_guesses ? kMostWorkspace : 0);
  if (!best_guesses && results.size() <= static_cast<std::size_t>(choice)) {
    const bool none = results.empty();
    for (const lt::HeuristicResult& one : suggestions(kMostWorkspace)) {
      if (none || one.workspace > kCounters) results.push_back(one);
    }
  }
  if (results.size() <= static_cast<std::size_t>(choice)) {
    throw_environment("cuBLASLt has {} algorithm{} for [{}, {}] x [{}, {}] in {}, number {} was asked for",
                      results.size(), results.size() == 1 ? "" : "s", spec_.rows, spec_.in, spec_.in, spec_.out,
                      name_of(spec_.type), choice);
  }
  algo_ = results[static_cast<std::size_t>(choice)].algo;
  workspace_ = results[static_cast<std::size_t>(choice)].workspace;
}

void Product::run(CUstream stream, const void* x, const void* w, void* y, void* workspace) const {
  const float alpha = 1, beta = spec_.accumulate ? 1 : 0;
  check_lt(cublaslt().matmul(handle_, desc_.get(), &alpha, w, w_.get(), x, x_.get(), &beta, y, y_.get(), y, y_.get(),
                             &algo_, workspace, workspace_, stream),
           "cublasLtMatmul");
}

}  // namespace gnomon::cuda
