// Matrix products through oneDNN, always single-threaded: the caller's workers share the rows between them.
#pragma once

#include <dnnl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/stack_config.hpp"
#include "core/weights.hpp"
#include "cpu/aligned_buffer.hpp"

namespace gnomon::cpu {

// Throws the matching Error for a oneDNN status: out of memory and unsupported shapes are the environment's.
void check_dnnl(dnnl_status_t status, const char* what);

// An owned oneDNN handle.
template <class T, dnnl_status_t (*kDestroy)(T)>
struct Handle {
  T value = nullptr;
  Handle() = default;
  explicit Handle(T v) : value(v) {}
  Handle(Handle&& o) noexcept : value(std::exchange(o.value, nullptr)) {}
  Handle& operator=(Handle&& o) noexcept {
    std::swap(value, o.value);
    return *this;
  }
  ~Handle() {
    if (value) kDestroy(value);
  }
};
using DnnlMemory = Handle<dnnl_memory_t, dnnl_memory_destroy>;
using DnnlPrimitive = Handle<dnnl_primitive_t, dnnl_primitive_destroy>;
using DnnlStream = Handle<dnnl_stream_t, dnnl_stream_destroy>;

dnnl_engine_t dnnl_cpu_engine();

// What multiplies: y[M, out] = x[M, in] * weight^T (+ bias), then (+ y), then the activation.
struct ProductSpec {
  std::int64_t rows = 0;  // M
  std::int64_t ldx = 0, ldy = 0;
  bool bf16 = false;        // x and the weight are bf16, the sum fp32
  bool accumulate = false;  // y += ...
  bool activate = false;
  Activation activation = Activation::gelu_erf;
  bool operator==(const ProductSpec&) const = default;
};

// Packed copies of the weights, shared by all plans of an engine; what no plan uses any more goes with trim(). Packs
// are known by the addresses of their weights and biases: one WeightPacks serves one Weights and does not outlive it.
class WeightPacks {
 public:
  struct Pack {
    dnnl_memory_desc_t desc;
    DnnlMemory memory;
    std::vector<float> bias;  // of parts put together; empty: no bias
    std::int64_t bytes = 0;
  };
  // `parts` are stacked along their outputs (Q, K and V into one [3d, d]).
  std::shared_ptr<const Pack> get(const std::vector<const LinearWeights*>& parts, bool bf16,
                                  const dnnl_memory_desc_t& desc);
  void trim();
  std::int64_t bytes() const;

 private:
  mutable std::mutex lock_;
  std::multimap<std::string, std::shared_ptr<const Pack>> packs_;  // by the parts they were made of
};

// A oneDNN product of one exact shape, with what each worker needs to run it while others do.
class BoundMatmul {
 public:
  BoundMatmul() = default;
  // `weight` and `bias` are the same in every run and belong to the caller; null: given to run(), and no bias.
  BoundMatmul(const_dnnl_primitive_desc_t desc, dnnl_memory_t weight, dnnl_memory_t bias, int workers);
  void run(int worker, const void* x, void* y, const void* weight = nullptr) const;

 private:
  struct Slot {
    DnnlMemory x, weight, y, scratch;
    DnnlStream stream;
    AlignedBuffer scratch_bytes;
    std::vector<dnnl_exec_arg_t> args;
  };
  DnnlPrimitive primitive_;
  std::vector<Slot> slots_;
};

// A product with weights. run() may be called by several workers at once, each with its own number.
class Product {
 public:
  // With the weight packed in oneDNN's own order.
  Product(WeightPacks& packs, const std::vector<const LinearWeights*>& parts, const ProductSpec& spec, int workers);
  // With the fp32 weight where it lies, row-major as the state_dict has it: `weights` outlives the product.
  Product(const LinearWeights& weights, const ProductSpec& spec, int workers);
  // x: fp32 rows, or bf16 rows when the spec says so.
  void run(int worker, const void* x, float* y) const { matmul_.run(worker, x, y); }
  const ProductSpec& spec() const { return spec_; }
  std::int64_t packed_bytes() const { return pack_ ? pack_->bytes : 0; }

 private:
  ProductSpec spec_;
  std::shared_ptr<const WeightPacks::Pack> pack_;  // null: used where it lies
  DnnlMemory weight_, bias_;                       // weight_: the one that is used where it lies
  BoundMatmul matmul_;
};

// y[M, N] = a[M, K] * b, with b either [K, N] or, transposed, [N, K]: the two products of unfused attention.
class PlainProduct {
 public:
  PlainProduct(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t lda, std::int64_t ldb, std::int64_t ldy,
               bool b_transposed, int workers);
  void run(int worker, const float* a, const float* b, float* y) const { matmul_.run(worker, a, y, b); }

 private:
  BoundMatmul matmul_;
};

}  // namespace gnomon::cpu
