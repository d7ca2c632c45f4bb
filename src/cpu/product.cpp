#include "cpu/product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "core/error.hpp"
#include "core/memory.hpp"
#include "cpu/one_omp_thread.hpp"
#include "cpu/thread_pool.hpp"
#include "cpu/vec_kernels.hpp"

namespace gnomon::cpu {
namespace {

using PrimitiveDesc = Handle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Attributes = Handle<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOps = Handle<dnnl_post_ops_t, dnnl_post_ops_destroy>;

dnnl_memory_desc_t matrix(std::int64_t rows, std::int64_t columns, std::int64_t row_stride, std::int64_t column_stride,
                          dnnl_data_type_t type) {
  const dnnl_dims_t dims = {rows, columns};
  const dnnl_dims_t strides = {row_stride, column_stride};
  dnnl_memory_desc_t desc;
  check_dnnl(dnnl_memory_desc_init_by_strides(&desc, 2, dims, type, strides), "describing a matrix");
  return desc;
}

// oneDNN's memory objects are of void*; what it only reads is not written.
DnnlMemory memory(const dnnl_memory_desc_t& desc, const void* data) {
  DnnlMemory result;
  check_dnnl(dnnl_memory_create(&result.value, &desc, dnnl_cpu_engine(), const_cast<void*>(data)),
             "making a memory object");
  return result;
}

Attributes attributes(const ProductSpec& spec) {
  Attributes attr;
  check_dnnl(dnnl_primitive_attr_create(&attr.value), "making attributes");
  check_dnnl(dnnl_primitive_attr_set_scratchpad_mode(attr.value, dnnl_scratchpad_mode_user), "setting the scratchpad");
  PostOps post;
  check_dnnl(dnnl_post_ops_create(&post.value), "making post-ops");
  if (spec.accumulate) check_dnnl(dnnl_post_ops_append_sum(post.value, 1.0f), "appending a sum");
  if (spec.activate) {
    const dnnl_alg_kind_t kind = spec.activation == Activation::relu        ? dnnl_eltwise_relu
                                 : spec.activation == Activation::gelu_tanh ? dnnl_eltwise_gelu_tanh
                                                                            : dnnl_eltwise_gelu_erf;
    // oneDNN's ReLU of slope 0 turns NaN into 0. Any other slope keeps it; this one is 0 to every contract.
    const float alpha = kind == dnnl_eltwise_relu ? std::numeric_limits<float>::min() : 0.0f;
    check_dnnl(dnnl_post_ops_append_eltwise(post.value, 1.0f, kind, alpha, 0.0f), "appending an activation");
  }
  check_dnnl(dnnl_primitive_attr_set_post_ops(attr.value, post.value), "setting post-ops");
  return attr;
}

// Under a limit on address space, asked before every product. A thread's first allocation may take 64 MiB of it for the
// allocator's own arena: it is made before the question, not after.
void require_room_for_code(int workers) {
  if (!has_process_limits()) return;
  ThreadPool::shared().run(workers, [](int) { ::operator delete(::operator new(64)); });
  require_library_reserve();
}

PrimitiveDesc matmul_desc(const dnnl_memory_desc_t& a, const dnnl_memory_desc_t& b, const dnnl_memory_desc_t* bias,
                          const dnnl_memory_desc_t& y, const Attributes& attr) {
  dnnl_matmul_desc_t desc;
  check_dnnl(dnnl_matmul_desc_init(&desc, &a, &b, bias, &y), "describing a product");
  PrimitiveDesc result;
  check_dnnl(dnnl_primitive_desc_create(&result.value, &desc, attr.value, dnnl_cpu_engine(), nullptr),
             "choosing a product");
  return result;
}

dnnl_memory_desc_t vector(std::int64_t n) { return matrix(1, n, n, 1, dnnl_f32); }

dnnl_memory_desc_t in_any_order(std::int64_t rows, std::int64_t columns, dnnl_data_type_t type) {
  const dnnl_dims_t dims = {rows, columns};
  dnnl_memory_desc_t desc;
  check_dnnl(dnnl_memory_desc_init_by_tag(&desc, 2, dims, type, dnnl_format_tag_any), "describing a weight");
  return desc;
}

PrimitiveDesc linear_desc(std::int64_t in, std::int64_t out, const dnnl_memory_desc_t& weight, bool has_bias,
                          const ProductSpec& spec) {
  const dnnl_memory_desc_t x = matrix(spec.rows, in, spec.ldx, 1, spec.bf16 ? dnnl_bf16 : dnnl_f32);
  const dnnl_memory_desc_t y = matrix(spec.rows, out, spec.ldy, 1, dnnl_f32);
  const dnnl_memory_desc_t bias = vector(out);
  return matmul_desc(x, weight, has_bias ? &bias : nullptr, y, attributes(spec));
}

DnnlStream new_stream() {
  DnnlStream stream;
  check_dnnl(dnnl_stream_create(&stream.value, dnnl_cpu_engine(), dnnl_stream_default_flags), "making a stream");
  return stream;
}

const dnnl_memory_desc_t& part_of(const_dnnl_primitive_desc_t desc, dnnl_query_t part) {
  return *dnnl_primitive_desc_query_md(desc, part, 0);
}

// The rows of all parts in one [out, in] matrix, and their biases in one vector.
std::vector<float> stack(const std::vector<const LinearWeights*>& parts, std::vector<float>& bias) {
  std::vector<float> weight;
  for (const LinearWeights* part : parts) {
    weight.insert(weight.end(), part->weight.begin(), part->weight.end());
    bias.insert(bias.end(), part->bias.begin(), part->bias.end());
  }
  return weight;
}

// oneDNN keeps the last 1024 products with their code, some 0.2 MiB for each length met, long after our plans are gone.
// As many as a planning goes back to are enough. A capacity that somebody chose is left alone.
void bound_primitive_cache() {
  constexpr int usual = 1024, enough = 64;
  int capacity = 0;
  check_dnnl(dnnl_get_primitive_cache_capacity(&capacity), "asking for the cache's capacity");
  if (capacity == usual) check_dnnl(dnnl_set_primitive_cache_capacity(enough), "bounding the cache");
}

}  // namespace

void check_dnnl(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  if (status == dnnl_unimplemented) throw_environment("oneDNN has no implementation here for this: {}", what);
  throw_internal("oneDNN returned status {} while {}", static_cast<int>(status), what);
}

dnnl_engine_t dnnl_cpu_engine() {
  static const dnnl_engine_t engine = [] {
    bound_primitive_cache();
    dnnl_engine_t e = nullptr;
    check_dnnl(dnnl_engine_create(&e, dnnl_cpu, 0), "opening the CPU engine");
    return e;
  }();
  return engine;
}

std::shared_ptr<const WeightPacks::Pack> WeightPacks::get(const std::vector<const LinearWeights*>& parts, bool bf16,
                                                          const dnnl_memory_desc_t& desc) {
  std::string key = bf16 ? "bf16" : "f32";
  for (const LinearWeights* part : parts)
    key += fmt::format("|{},{}", static_cast<const void*>(part->weight.data()),
                       static_cast<const void*>(part->bias.data()));
  std::lock_guard lock(lock_);
  for (auto [at, end] = packs_.equal_range(key); at != end; ++at) {
    if (dnnl_memory_desc_equal(&at->second->desc, &desc)) return at->second;
  }

  auto pack = std::make_shared<Pack>();
  pack->desc = desc;
  std::vector<float> weight = stack(parts, pack->bias);
  const std::int64_t in = parts.front()->in;
  const std::int64_t out = static_cast<std::int64_t>(weight.size()) / in;
  std::vector<std::uint16_t> narrow(bf16 ? weight.size() : 0);
  if (bf16) vec_kernels().to_bf16(weight.data(), narrow.data(), static_cast<std::int64_t>(weight.size()));
  const dnnl_memory_desc_t plain = matrix(in, out, 1, in, bf16 ? dnnl_bf16 : dnnl_f32);
  const DnnlMemory source = memory(plain, bf16 ? static_cast<const void*>(narrow.data()) : weight.data());
  pack->memory = memory(desc, DNNL_MEMORY_ALLOCATE);
  pack->bytes = static_cast<std::int64_t>(dnnl_memory_desc_get_size(&desc) + pack->bias.size() * sizeof(float));

  dnnl_primitive_desc_t reorder_desc = nullptr;
  check_dnnl(
      dnnl_reorder_primitive_desc_create(&reorder_desc, &plain, dnnl_cpu_engine(), &desc, dnnl_cpu_engine(), nullptr),
      "choosing a weight reorder");
  const PrimitiveDesc owned(reorder_desc);
  DnnlPrimitive reorder;
  check_dnnl(dnnl_primitive_create(&reorder.value, reorder_desc), "making a weight reorder");
  const DnnlStream stream = new_stream();
  const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, source.value}, {DNNL_ARG_TO, pack->memory.value}};
  check_dnnl(dnnl_primitive_execute(reorder.value, stream.value, 2, args), "packing a weight");
  check_dnnl(dnnl_stream_wait(stream.value), "packing a weight");
  return packs_.emplace(std::move(key), std::move(pack))->second;
}

void WeightPacks::trim() {
  std::lock_guard lock(lock_);
  std::erase_if(packs_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

std::int64_t WeightPacks::bytes() const {
  std::lock_guard lock(lock_);
  std::int64_t sum = 0;
  for (const auto& [key, pack] : packs_) sum += pack->bytes;
  return sum;
}

BoundMatmul::BoundMatmul(const_dnnl_primitive_desc_t desc, dnnl_memory_t weight, dnnl_memory_t bias, int workers)
    : slots_(static_cast<std::size_t>(workers)) {
  check_dnnl(dnnl_primitive_create(&primitive_.value, desc), "making a product");
  const dnnl_memory_desc_t& scratch = part_of(desc, dnnl_query_scratchpad_md);
  for (Slot& slot : slots_) {
    slot.x = memory(part_of(desc, dnnl_query_src_md), DNNL_MEMORY_NONE);
    slot.y = memory(part_of(desc, dnnl_query_dst_md), DNNL_MEMORY_NONE);
    if (!weight) slot.weight = memory(part_of(desc, dnnl_query_weights_md), DNNL_MEMORY_NONE);
    slot.stream = new_stream();
    slot.scratch_bytes = AlignedBuffer(dnnl_memory_desc_get_size(&scratch));
    slot.scratch = memory(scratch, slot.scratch_bytes.data());
    slot.args = {{DNNL_ARG_SRC, slot.x.value},
                 {DNNL_ARG_WEIGHTS, weight ? weight : slot.weight.value},
                 {DNNL_ARG_DST, slot.y.value},
                 {DNNL_ARG_SCRATCHPAD, slot.scratch.value}};
    if (bias) slot.args.push_back({DNNL_ARG_BIAS, bias});
  }
}

void BoundMatmul::run(int worker, const void* x, void* y, const void* weight) const {
  const Slot& slot = slots_[static_cast<std::size_t>(worker)];
  const auto point = [](const DnnlMemory& to, const void* at) {
    check_dnnl(dnnl_memory_set_data_handle(to.value, const_cast<void*>(at)), "binding an operand");
  };
  point(slot.x, x);
  point(slot.y, y);
  if (weight) point(slot.weight, weight);
  check_dnnl(
      dnnl_primitive_execute(primitive_.value, slot.stream.value, static_cast<int>(slot.args.size()), slot.args.data()),
      "running a product");
}

Product::Product(WeightPacks& packs, const std::vector<const LinearWeights*>& parts, const ProductSpec& spec,
                 int workers)
    : spec_(spec) {
  require_room_for_code(workers);
  const OneOmpThread one;
  const std::int64_t in = parts.front()->in;
  std::int64_t out = 0;
  for (const LinearWeights* part : parts) out += part->out;
  const bool has_bias = !parts.front()->bias.empty();
  const dnnl_memory_desc_t weight = in_any_order(in, out, spec.bf16 ? dnnl_bf16 : dnnl_f32);
  const PrimitiveDesc desc = linear_desc(in, out, weight, has_bias, spec);
  pack_ = packs.get(parts, spec.bf16, part_of(desc.value, dnnl_query_weights_md));
  if (has_bias) bias_ = memory(vector(out), pack_->bias.data());
  matmul_ = BoundMatmul(desc.value, pack_->memory.value, bias_.value, workers);
}

Product::Product(const LinearWeights& weights, const ProductSpec& spec, int workers) : spec_(spec) {
  if (spec.bf16) throw_internal("a bf16 product needs a packed weight");
  require_room_for_code(workers);
  const OneOmpThread one;
  const bool has_bias = !weights.bias.empty();
  const dnnl_memory_desc_t weight = matrix(weights.in, weights.out, 1, weights.in, dnnl_f32);
  const PrimitiveDesc desc = linear_desc(weights.in, weights.out, weight, has_bias, spec);
  weight_ = memory(weight, weights.weight.data());
  if (has_bias) bias_ = memory(vector(weights.out), weights.bias.data());
  matmul_ = BoundMatmul(desc.value, weight_.value, bias_.value, workers);
}

PlainProduct::PlainProduct(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t lda, std::int64_t ldb,
                           std::int64_t ldy, bool b_transposed, int workers) {
  require_room_for_code(workers);
  const OneOmpThread one;
  const dnnl_memory_desc_t a = matrix(m, k, lda, 1, dnnl_f32);
  const dnnl_memory_desc_t b = b_transposed ? matrix(k, n, 1, ldb, dnnl_f32) : matrix(k, n, ldb, 1, dnnl_f32);
  const dnnl_memory_desc_t y = matrix(m, n, ldy, 1, dnnl_f32);
  const PrimitiveDesc desc = matmul_desc(a, b, nullptr, y, attributes(ProductSpec{}));
  matmul_ = BoundMatmul(desc.value, nullptr, nullptr, workers);
}

}  // namespace gnomon::cpu
