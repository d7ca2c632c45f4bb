// y = epilogue(x * w^T + bias), by cuBLASLt. Matrices are row-major: w as nn.Linear keeps it, [out, in].
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/dtype.hpp"
#include "cuda/cublaslt.hpp"
#include "cuda/driver.hpp"

namespace gnomon::cuda {

inline constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;  // what NVIDIA advises for Hopper

// One for each device; products of one handle may run from several threads.
class BlasHandle {
 public:
  BlasHandle() { check_lt(cublaslt().create(&handle_), "cublasLtCreate"); }
  ~BlasHandle() { cublaslt().destroy(handle_); }
  BlasHandle(const BlasHandle&) = delete;
  BlasHandle& operator=(const BlasHandle&) = delete;
  lt::Handle get() const { return handle_; }

 private:
  lt::Handle handle_ = nullptr;
};

struct LtDestroy {
  void operator()(lt::Desc desc) const { cublaslt().desc_destroy(desc); }
  void operator()(lt::Layout layout) const { cublaslt().layout_destroy(layout); }
};

enum class Epilogue { none, relu, gelu_tanh };  // after the bias, if there is one

struct ProductSpec {
  std::int64_t rows = 0, in = 0, out = 0;
  std::int64_t ldx = 0, ldw = 0, ldy = 0;  // elements from row to row
  DType type = DType::f32;                 // of x and w
  DType result = DType::f32;               // of y and the bias
  bool tf32 = false;                       // fp32 operands rounded to tf32 in the products
  Epilogue epilogue = Epilogue::none;
  bool accumulate = false;   // y += ...
  bool w_transposed = true;  // false: w is [in, out], as the values of attention are
  std::int64_t batch = 1;    // products of one form, at these distances in elements
  std::int64_t x_step = 0, w_step = 0, y_step = 0;
  const void* bias = nullptr;  // [out], of `result`'s type; null: none
};

class Product {
 public:
  // `choice`: which of the library's suggestions, best guess first; in 16 bits those without workspace ahead.
  // Environment error when it has no such: the shape is one that it does not do, or has fewer algorithms for.
  Product(const BlasHandle& handle, const ProductSpec& spec, int choice = 0);

  std::size_t workspace_bytes() const { return workspace_; }
  void run(CUstream stream, const void* x, const void* w, void* y, void* workspace) const;

 private:
  std::vector<lt::HeuristicResult> suggestions(std::size_t most_workspace) const;
  void suggest(int choice);

  lt::Handle handle_;
  ProductSpec spec_;
  std::unique_ptr<lt::DescStruct, LtDestroy> desc_;
  std::unique_ptr<lt::LayoutStruct, LtDestroy> x_, w_, y_;
  lt::Algo algo_{};
  std::size_t workspace_ = 0;
};

}  // namespace gnomon::cuda
