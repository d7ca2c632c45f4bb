// cuDNN's graph interface, taken from the process or from disk when first asked for. The few types and functions used
// are declared here: building takes no header of it (tests/cuda/cudnn_test.cpp compares them with NVIDIA's where that
// is installed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <utility>

namespace gnomon::cuda {

namespace dnn {

inline constexpr int success = 0;

enum DataType : int { f32 = 0, f16 = 2, i32 = 4, bf16 = 9, boolean = 11 };
enum PointwiseMode : int {
  add = 0,
  mul = 1,
  div = 6,
  sub = 9,
  exp = 13,
  log = 15,
  cmp_ge = 303,
  gen_index = 501,
  binary_select = 601
};
enum ReductionOperator : int { reduce_add = 0, reduce_max = 3 };
enum HeurMode : int { heur_a = 3 };

enum Kind : int {  // of a descriptor
  pointwise_descriptor = 0,
  engine_config_descriptor = 3,
  engine_heuristics_descriptor = 4,
  execution_plan_descriptor = 5,
  operation_pointwise_descriptor = 13,
  operation_graph_descriptor = 15,
  variant_pack_descriptor = 16,
  tensor_descriptor = 17,
  matmul_descriptor = 18,
  operation_matmul_descriptor = 19,
  reduction_descriptor = 21,
  operation_reduction_descriptor = 22,
  device_properties_descriptor = 38
};

enum Attribute : int {
  pointwise_mode = 0,
  pointwise_math_type = 1,
  pointwise_axis = 9,
  heuristics_mode = 200,
  heuristics_graph = 201,
  heuristics_results = 202,
  heuristics_device = 204,
  plan_handle = 400,
  plan_engine_config = 401,
  plan_workspace_bytes = 402,
  plan_json = 405,
  plan_device = 407,
  operation_pointwise_descriptor_at = 750,
  operation_pointwise_x = 751,
  operation_pointwise_b = 752,
  operation_pointwise_y = 753,
  operation_pointwise_t = 758,
  graph_handle = 800,
  graph_operations = 801,
  tensor_alignment = 900,
  tensor_data_type = 901,
  tensor_dimensions = 902,
  tensor_strides = 903,
  tensor_id = 906,
  tensor_is_virtual = 907,
  tensor_is_by_value = 908,
  pack_ids = 1000,
  pack_pointers = 1001,
  pack_workspace = 1003,
  matmul_math_type = 1500,
  operation_matmul_a = 1520,
  operation_matmul_b = 1521,
  operation_matmul_c = 1522,
  operation_matmul_descriptor_at = 1523,
  reduction_operator = 1600,
  reduction_math_type = 1601,
  operation_reduction_x = 1610,
  operation_reduction_y = 1611,
  operation_reduction_descriptor_at = 1612,
  device_json = 2702
};

enum Type : int {  // of an attribute's elements
  type_handle = 0,
  type_data_type = 1,
  type_boolean = 2,
  type_int64 = 3,
  type_pointer = 6,
  type_heur_mode = 8,
  type_pointwise_mode = 14,
  type_descriptor = 15,
  type_reduction_operator = 18,
  type_char = 24
};

using Handle = struct HandleStruct*;
using RawDescriptor = void*;

}  // namespace dnn

struct Cudnn {
  std::size_t (*version)() = nullptr;
  const char* (*status_string)(int status) = nullptr;
  void (*last_error)(char* text, std::size_t bytes) = nullptr;  // of the calling thread, in more words
  int (*create)(dnn::Handle* handle) = nullptr;
  int (*destroy)(dnn::Handle handle) = nullptr;
  int (*set_stream)(dnn::Handle handle, void* stream) = nullptr;
  int (*create_descriptor)(int kind, dnn::RawDescriptor* descriptor) = nullptr;
  int (*destroy_descriptor)(dnn::RawDescriptor descriptor) = nullptr;
  int (*finalize)(dnn::RawDescriptor descriptor) = nullptr;
  int (*set)(dnn::RawDescriptor descriptor, int attribute, int type, std::int64_t count,
             const void* elements) = nullptr;
  int (*get)(dnn::RawDescriptor descriptor, int attribute, int type, std::int64_t wanted, std::int64_t* count,
             void* elements) = nullptr;
  int (*execute)(dnn::Handle handle, dnn::RawDescriptor plan, dnn::RawDescriptor variant_pack) = nullptr;

  std::string version_text;  // "9.19.0"
};

// Environment error: not found, without a function, or older than attention can be taken from.
Cudnn load_cudnn(std::span<const std::string> names, std::span<const std::filesystem::path> folders);

const std::string& cudnn_missing();  // why there is none, in one line; empty when there is one
const Cudnn& cudnn();                // environment error when there is none
void use_cudnn(const Cudnn* other);  // for the whole process; null: the one that is found again

// Environment error: "cudnnBackendFinalize failed: CUDNN_STATUS_NOT_SUPPORTED: ...", the library's own words last.
void check_dnn(int status, const char* call);

class DnnDescriptor {
 public:
  explicit DnnDescriptor(dnn::Kind kind) {
    check_dnn(cudnn().create_descriptor(kind, &raw_), "cudnnBackendCreateDescriptor");
  }
  ~DnnDescriptor() {
    if (raw_) cudnn().destroy_descriptor(raw_);
  }
  DnnDescriptor(DnnDescriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  DnnDescriptor(const DnnDescriptor&) = delete;
  DnnDescriptor& operator=(const DnnDescriptor&) = delete;

  // Of any type that the attribute's stands for.
  template <typename Values>
  void set_all(dnn::Attribute attribute, dnn::Type type, const Values& values) {
    check_dnn(cudnn().set(raw_, attribute, type, static_cast<std::int64_t>(std::size(values)), std::data(values)),
              "cudnnBackendSetAttribute");
  }
  template <typename T>
  void set(dnn::Attribute attribute, dnn::Type type, const T& value) {
    set_all(attribute, type, std::span<const T>(&value, 1));
  }
  void set(dnn::Attribute attribute, const DnnDescriptor& value) { set(attribute, dnn::type_descriptor, value.raw_); }
  void finalize() { check_dnn(cudnn().finalize(raw_), "cudnnBackendFinalize"); }
  dnn::RawDescriptor get() const { return raw_; }

 private:
  dnn::RawDescriptor raw_ = nullptr;
};

}  // namespace gnomon::cuda
