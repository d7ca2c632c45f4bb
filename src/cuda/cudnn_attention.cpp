#include "cuda/cudnn_attention.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "cuda/product.hpp"

namespace gnomon::cuda {
namespace {

constexpr std::int64_t kWidest = 256;

using Four = std::array<std::int64_t, 4>;  // batch, heads, and a matrix

// Of tensors that have addresses.
enum Id : std::int64_t { id_q = 1, id_k, id_v, id_out, id_scale, id_hidden, id_first_inner };

dnn::DataType stored_type(DType type) { return type == DType::bf16 ? dnn::bf16 : dnn::f16; }

// Operations one by one; every tensor has an index.
class GraphWriter {
 public:
  GraphWriter(std::vector<DnnDescriptor>& tensors, std::vector<DnnDescriptor>& operations)
      : tensors_(tensors), operations_(operations) {}

  std::size_t given(Id id, dnn::DataType type, const Four& shape, const Four& strides) {
    return tensor(id, type, shape, strides, false, false);
  }
  std::size_t number(Id id) { return tensor(id, dnn::f32, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true); }

  std::size_t multiply(std::size_t a, std::size_t b, const Four& shape) {
    const std::size_t c = inner(dnn::f32, shape);
    multiply_to(a, b, c);
    return c;
  }
  void multiply_to(std::size_t a, std::size_t b, std::size_t c) {
    DnnDescriptor how(dnn::matmul_descriptor);
    how.set(dnn::matmul_math_type, dnn::type_data_type, dnn::f32);
    how.finalize();
    DnnDescriptor& operation = add(dnn::operation_matmul_descriptor);
    operation.set(dnn::operation_matmul_a, tensors_[a]);
    operation.set(dnn::operation_matmul_b, tensors_[b]);
    operation.set(dnn::operation_matmul_c, tensors_[c]);
    operation.set(dnn::operation_matmul_descriptor_at, how);
    operation.finalize();
  }

  struct Elementwise {
    dnn::PointwiseMode mode;
    std::optional<std::size_t> b, t;  // the second operand, and what selects between them
    dnn::DataType result = dnn::f32, math = dnn::f32;
    std::int64_t axis = -1;  // of gen_index
  };
  std::size_t apply(std::size_t x, const Four& shape, const Elementwise& what) {
    DnnDescriptor how(dnn::pointwise_descriptor);
    how.set(dnn::pointwise_mode, dnn::type_pointwise_mode, what.mode);
    how.set(dnn::pointwise_math_type, dnn::type_data_type, what.math);
    if (what.axis >= 0) how.set(dnn::pointwise_axis, dnn::type_int64, what.axis);
    how.finalize();
    const std::size_t y = inner(what.result, shape);
    DnnDescriptor& operation = add(dnn::operation_pointwise_descriptor);
    operation.set(dnn::operation_pointwise_descriptor_at, how);
    operation.set(dnn::operation_pointwise_x, tensors_[x]);
    if (what.b) operation.set(dnn::operation_pointwise_b, tensors_[*what.b]);
    if (what.t) operation.set(dnn::operation_pointwise_t, tensors_[*what.t]);
    operation.set(dnn::operation_pointwise_y, tensors_[y]);
    operation.finalize();
    return y;
  }

  // Over the last dimension.
  std::size_t reduce(std::size_t x, const Four& shape, dnn::ReductionOperator op) {
    DnnDescriptor how(dnn::reduction_descriptor);
    how.set(dnn::reduction_operator, dnn::type_reduction_operator, op);
    how.set(dnn::reduction_math_type, dnn::type_data_type, dnn::f32);
    how.finalize();
    const std::size_t y = inner(dnn::f32, {shape[0], shape[1], shape[2], 1});
    DnnDescriptor& operation = add(dnn::operation_reduction_descriptor);
    operation.set(dnn::operation_reduction_descriptor_at, how);
    operation.set(dnn::operation_reduction_x, tensors_[x]);
    operation.set(dnn::operation_reduction_y, tensors_[y]);
    operation.finalize();
    return y;
  }

 private:
  // A tensor between operations, which an engine keeps on the chip.
  std::size_t inner(dnn::DataType type, const Four& shape) {
    const auto& [b, h, rows, columns] = shape;
    return tensor(next_++, type, shape, {h * rows * columns, rows * columns, columns, 1}, true, false);
  }
  std::size_t tensor(std::int64_t id, dnn::DataType type, const Four& shape, const Four& strides, bool is_virtual,
                     bool by_value) {
    DnnDescriptor& made = tensors_.emplace_back(dnn::tensor_descriptor);
    made.set(dnn::tensor_id, dnn::type_int64, id);
    made.set(dnn::tensor_data_type, dnn::type_data_type, type);
    made.set_all(dnn::tensor_dimensions, dnn::type_int64, shape);
    made.set_all(dnn::tensor_strides, dnn::type_int64, strides);
    made.set(dnn::tensor_alignment, dnn::type_int64, std::int64_t{16});
    made.set(dnn::tensor_is_virtual, dnn::type_boolean, is_virtual);
    made.set(dnn::tensor_is_by_value, dnn::type_boolean, by_value);
    made.finalize();
    return tensors_.size() - 1;
  }
  DnnDescriptor& add(dnn::Kind kind) { return operations_.emplace_back(kind); }

  std::vector<DnnDescriptor>& tensors_;
  std::vector<DnnDescriptor>& operations_;
  std::int64_t next_ = id_first_inner;
};

}  // namespace

std::optional<std::string> refuses_cudnn_attention(const AttentionSpec& spec) {
  if (spec.dtype != DType::f16 && spec.dtype != DType::bf16)
    return fmt::format("cuDNN's attention takes f16 or bf16, not {}", name_of(spec.dtype));
  if (spec.masked)
    return "cuDNN's attention takes one number of keys for each sequence: two of the four classes of mask (all valid, "
           "right padding; not left padding, not holes), and only the device knows which one a call brings";
  if (spec.head_dim % 8 != 0 || spec.head_dim > kWidest)
    return fmt::format("cuDNN's attention takes head sizes that are multiples of 8 up to {}, this one is {}", kWidest,
                       spec.head_dim);
  if (absent_architecture()) return "cuDNN would find a driver by itself, and this device is not there";
  if (const std::string& why = cudnn_missing(); !why.empty()) return why;
  return {};
}

DnnAttention::DnnAttention(const AttentionSpec& spec, const DnnTarget& target)
    : spec_(spec),
      scale_(1 / std::sqrt(static_cast<float>(spec.head_dim))),
      hidden_(-std::numeric_limits<float>::infinity()) {
  try {
    describe_device(target);
    write(target);
    choose_engine();
  } catch (const Error& error) {
    throw_environment("cuDNN {} does not run attention of {} sequences of {} tokens, {} heads of {} in {}: {}",
                      cudnn().version_text, spec.batch, spec.seq, spec.heads, spec.head_dim, name_of(spec.dtype),
                      error.what());
  }
}

DnnAttention::DnnAttention(const AttentionSpec& spec, const DnnTarget& target, const std::string& kept)
    : spec_(spec),
      scale_(1 / std::sqrt(static_cast<float>(spec.head_dim))),
      hidden_(-std::numeric_limits<float>::infinity()) {
  describe_device(target);
  DnnDescriptor plan(dnn::execution_plan_descriptor);
  plan.set_all(dnn::plan_json, dnn::type_char, kept);
  if (device_) {
    plan.set(dnn::plan_device, *device_);
  } else {
    plan.set(dnn::plan_handle, dnn::type_handle, target.handle);
  }
  plan.finalize();
  take(std::move(plan));
}

std::string DnnAttention::kept() const {
  std::int64_t size = 0;
  check_dnn(cudnn().get(plan(), dnn::plan_json, dnn::type_char, 0, &size, nullptr), "cudnnBackendGetAttribute");
  std::string text(static_cast<std::size_t>(size), '\0');
  check_dnn(cudnn().get(plan(), dnn::plan_json, dnn::type_char, size, &size, text.data()), "cudnnBackendGetAttribute");
  return text;
}

void DnnAttention::describe_device(const DnnTarget& target) {
  if (target.device_json.empty()) return;
  device_.emplace(dnn::device_properties_descriptor);
  device_->set_all(dnn::device_json, dnn::type_char, target.device_json);
  device_->finalize();
}

void DnnAttention::take(DnnDescriptor plan) {
  std::int64_t bytes = 0, got = 0;
  check_dnn(cudnn().get(plan.get(), dnn::plan_workspace_bytes, dnn::type_int64, 1, &got, &bytes),
            "cudnnBackendGetAttribute");
  if (bytes < 0 || static_cast<std::size_t>(bytes) > kMostWorkspace)
    throw_environment("it wants {} bytes of workspace, {} are given", bytes, kMostWorkspace);
  workspace_ = static_cast<std::size_t>(bytes);
  plan_.emplace(std::move(plan));
}

// The engines recognise a pattern, that of NVIDIA's frontend: without the logarithm of the sum, which nobody reads,
// there is none for it.
void DnnAttention::write(const DnnTarget& target) {
  const auto& [dtype, b, s, h, head, causal, masked, alignment] = spec_;
  const dnn::DataType type = stored_type(dtype);
  const std::int64_t width = h * head, row = 3 * width;
  const Four scores{b, h, s, s};
  GraphWriter graph(tensors_, operations_);
  const std::size_t q = graph.given(id_q, type, {b, h, s, head}, {s * row, head, row, 1});
  const std::size_t k = graph.given(id_k, type, {b, h, head, s}, {s * row, head, 1, row});  // transposed
  const std::size_t v = graph.given(id_v, type, {b, h, s, head}, {s * row, head, row, 1});
  const std::size_t out = graph.given(id_out, type, {b, h, s, head}, {s * width, head, width, 1});

  std::size_t at = graph.multiply(q, k, scores);
  at = graph.apply(at, scores, {.mode = dnn::mul, .b = graph.number(id_scale)});
  if (causal) {
    const std::size_t query = graph.apply(at, scores, {.mode = dnn::gen_index, .result = dnn::i32, .axis = 2});
    const std::size_t key = graph.apply(at, scores, {.mode = dnn::gen_index, .result = dnn::i32, .axis = 3});
    const std::size_t seen =
        graph.apply(query, scores, {.mode = dnn::cmp_ge, .b = key, .result = dnn::boolean, .math = dnn::boolean});
    at = graph.apply(at, scores, {.mode = dnn::binary_select, .b = graph.number(id_hidden), .t = seen});
  }
  const std::size_t largest = graph.reduce(at, scores, dnn::reduce_max);
  at = graph.apply(at, scores, {.mode = dnn::sub, .b = largest});
  at = graph.apply(at, scores, {.mode = dnn::exp});
  const std::size_t sum = graph.reduce(at, scores, dnn::reduce_add);
  const std::size_t log_sum = graph.apply(sum, Four{b, h, s, 1}, {.mode = dnn::log});
  graph.apply(largest, Four{b, h, s, 1}, {.mode = dnn::add, .b = log_sum});
  at = graph.apply(at, scores, {.mode = dnn::div, .b = sum, .result = type});
  graph.multiply_to(at, v, out);

  graph_.emplace(dnn::operation_graph_descriptor);
  if (target.handle) graph_->set(dnn::graph_handle, dnn::type_handle, target.handle);
  std::vector<dnn::RawDescriptor> operations;
  for (const DnnDescriptor& operation : operations_) operations.push_back(operation.get());
  graph_->set_all(dnn::graph_operations, dnn::type_descriptor, operations);
  graph_->finalize();
}

void DnnAttention::choose_engine() {
  DnnDescriptor heuristics(dnn::engine_heuristics_descriptor);
  heuristics.set(dnn::heuristics_graph, *graph_);
  heuristics.set(dnn::heuristics_mode, dnn::type_heur_mode, dnn::heur_a);
  if (device_) heuristics.set(dnn::heuristics_device, *device_);
  heuristics.finalize();
  std::int64_t count = 0;
  check_dnn(cudnn().get(heuristics.get(), dnn::heuristics_results, dnn::type_descriptor, 0, &count, nullptr),
            "cudnnBackendGetAttribute");
  std::vector<DnnDescriptor> engines;
  std::vector<dnn::RawDescriptor> raw;
  for (std::int64_t i = 0; i < count; ++i) raw.push_back(engines.emplace_back(dnn::engine_config_descriptor).get());
  check_dnn(cudnn().get(heuristics.get(), dnn::heuristics_results, dnn::type_descriptor, count, &count, raw.data()),
            "cudnnBackendGetAttribute");
  std::string why = "no engine is suggested";
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    try {
      DnnDescriptor plan(dnn::execution_plan_descriptor);
      plan.set(dnn::plan_engine_config, engines[i]);
      plan.finalize();
      return take(std::move(plan));
    } catch (const Error& error) {
      why = error.what();
    }
  }
  throw_environment("{}", why);
}

DnnDescriptor DnnAttention::arguments(const void* qkv, void* out, void* workspace) const {
  const auto* const bytes = static_cast<const std::byte*>(qkv);
  const auto part = static_cast<std::size_t>(spec_.heads * spec_.head_dim) * size_of(spec_.dtype);
  std::vector<std::int64_t> ids = {id_q, id_k, id_v, id_out, id_scale};
  std::vector<const void*> at = {bytes, bytes + part, bytes + 2 * part, out, &scale_};
  if (spec_.causal) {
    ids.push_back(id_hidden);
    at.push_back(&hidden_);
  }
  DnnDescriptor pack(dnn::variant_pack_descriptor);
  pack.set_all(dnn::pack_ids, dnn::type_int64, ids);
  pack.set_all(dnn::pack_pointers, dnn::type_pointer, at);
  pack.set(dnn::pack_workspace, dnn::type_pointer, workspace);
  pack.finalize();
  return pack;
}

}  // namespace gnomon::cuda
