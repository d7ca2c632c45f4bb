// cuBLASLt, taken from the process or from disk when first needed. The few types and functions used are declared here:
// building takes no header of it (tests/cuda/cublaslt_test.cpp compares them with NVIDIA's where that is installed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gnomon::cuda {

namespace lt {

enum Status : int { success = 0, not_initialized = 1, alloc_failed = 3, invalid_value = 7, not_supported = 15 };
enum DataType : int { r_32f = 0, r_16f = 2, r_16bf = 14 };
enum ComputeType : int { compute_32f = 68, compute_32f_fast_tf32 = 77 };
enum Operation : int { op_n = 0, op_t = 1 };
enum Epilogue : int {
  epilogue_default = 1,
  epilogue_relu = 2,
  epilogue_bias = 4,
  epilogue_relu_bias = 6,
  epilogue_gelu = 32,
  epilogue_gelu_bias = 36
};
enum DescAttribute : int {
  desc_transa = 3,
  desc_transb = 4,
  desc_epilogue = 7,
  desc_bias_pointer = 8,
  desc_bias_type = 26
};
enum LayoutAttribute : int { layout_batch_count = 5, layout_batch_stride = 6 };
enum PreferenceAttribute : int {
  preference_workspace = 1,
  preference_alignment_a = 5,
  preference_alignment_b = 6,
  preference_alignment_c = 7,
  preference_alignment_d = 8
};

struct Algo {
  std::uint64_t data[8];
};
struct HeuristicResult {
  Algo algo;
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

using Handle = struct HandleStruct*;
using Desc = struct DescStruct*;
using Layout = struct LayoutStruct*;
using Preference = struct PreferenceStruct*;

}  // namespace lt

struct CublasLt {
  int (*create)(lt::Handle* handle) = nullptr;
  int (*destroy)(lt::Handle handle) = nullptr;
  std::size_t (*version)() = nullptr;
  const char* (*status_string)(int status) = nullptr;
  int (*desc_create)(lt::Desc* desc, int compute_type, int scale_type) = nullptr;
  int (*desc_destroy)(lt::Desc desc) = nullptr;
  int (*desc_set)(lt::Desc desc, int attribute, const void* value, std::size_t bytes) = nullptr;
  int (*layout_create)(lt::Layout* layout, int type, std::uint64_t rows, std::uint64_t columns,
                       std::int64_t leading) = nullptr;
  int (*layout_destroy)(lt::Layout layout) = nullptr;
  int (*layout_set)(lt::Layout layout, int attribute, const void* value, std::size_t bytes) = nullptr;
  int (*preference_create)(lt::Preference* preference) = nullptr;
  int (*preference_destroy)(lt::Preference preference) = nullptr;
  int (*preference_set)(lt::Preference preference, int attribute, const void* value, std::size_t bytes) = nullptr;
  int (*heuristics)(lt::Handle handle, lt::Desc desc, lt::Layout a, lt::Layout b, lt::Layout c, lt::Layout d,
                    lt::Preference preference, int wanted, lt::HeuristicResult* results, int* found) = nullptr;
  int (*matmul)(lt::Handle handle, lt::Desc desc, const void* alpha, const void* a, lt::Layout a_layout, const void* b,
                lt::Layout b_layout, const void* beta, const void* c, lt::Layout c_layout, void* d, lt::Layout d_layout,
                const lt::Algo* algo, void* workspace, std::size_t workspace_bytes, void* stream) = nullptr;

  std::string version_text;  // "13.1.0"
};

const CublasLt& cublaslt();                // environment error when there is none
void use_cublaslt(const CublasLt* other);  // as use_driver()

// Environment error: "cublasLtMatmul failed: CUBLAS_STATUS_NOT_SUPPORTED".
void check_lt(int status, const char* call);

}  // namespace gnomon::cuda
