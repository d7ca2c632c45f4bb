// cuDNN without a device: how it is found, what it refuses, and that its engines know our graph.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdlib>

#include "core/expect_error.hpp"
#include "cuda/cudnn_attention.hpp"
#include "cuda/dynamic_library.hpp"
#if __has_include(<cudnn_graph.h>) && __has_include(<cuda_runtime_api.h>)
#include <cudnn_graph.h>
#endif

namespace gnomon::cuda {
namespace {

// Built beside the tests; a machine that got the program alone has none.
const std::filesystem::path kFakes = GNOMON_FAKE_LIBRARIES;
#define GNOMON_SKIP_WITHOUT_FAKES() \
  if (!std::filesystem::exists(kFakes)) GTEST_SKIP() << "no " << kFakes << " here: the tests were copied without it"

Cudnn load(const std::string& name) {
  const std::array names = {name};
  const std::array folders = {kFakes};
  return load_cudnn(names, folders);
}

TEST(Cudnn, WhatIsMissingIsOneLine) {
  GNOMON_SKIP_WITHOUT_FAKES();
  expect_error(ErrorKind::environment, "cuDNN was not found: tried libcudnn-absent.so",
               [] { load("libcudnn-absent.so"); });
  expect_error(ErrorKind::environment, "is too old for its attention: 9.10.2 or newer is needed",
               [] { load("libcudnn-old.so"); });
  expect_error(ErrorKind::environment, "cuDNN 9.10.1 (", [] { load("libcudnn-old.so"); });
  expect_error(ErrorKind::environment, "has no cudnnBackendExecute", [] { load("libcudnn-partial.so"); });
  const Cudnn whole = load("libcudnn-whole.so");
  EXPECT_EQ(whole.version_text, "9.10.2");
  EXPECT_TRUE(whole.execute);
}

TEST(Cudnn, IsEitherThereOrSaysWhyNot) {
  if (cudnn_missing().empty()) {
    EXPECT_FALSE(cudnn().version_text.empty());
  } else {
    expect_error(ErrorKind::environment, cudnn_missing(), [] { cudnn(); });
  }
}

AttentionSpec spec(DType dtype, std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t head_dim,
                   bool causal) {
  return {.dtype = dtype, .batch = batch, .seq = seq, .heads = heads, .head_dim = head_dim, .causal = causal};
}

TEST(CudnnAttention, RefusesWithFigures) {
  const auto reason = [](const AttentionSpec& s) { return refuses_cudnn_attention(s).value_or(""); };
  EXPECT_THAT(reason(spec(DType::f32, 1, 10, 1, 64, true)), testing::HasSubstr("f16 or bf16, not f32"));
  EXPECT_THAT(reason(spec(DType::f16, 1, 10, 1, 20, true)),
              testing::HasSubstr("multiples of 8 up to 256, this one is 20"));
  EXPECT_THAT(reason(spec(DType::f16, 1, 10, 1, 320, true)), testing::HasSubstr("this one is 320"));
  AttentionSpec masked = spec(DType::f16, 1, 10, 1, 64, true);
  masked.masked = true;
  EXPECT_THAT(reason(masked), testing::HasSubstr("two of the four classes of mask"));
  EXPECT_EQ(reason(spec(DType::bf16, 1, 10, 1, 64, true)), cudnn_missing());
}

// An H200 in the words that cuDNN describes a device with: those of 9.19 and 9.27, which are not documented.
constexpr const char* kH200 =
    R"({"cudaDeviceId":0,"deviceName":"NVIDIA H200","deviceVer":900,"driverVer":13000,"isTccDriver":0,)"
    R"("l2CacheSize":62914560,"maxBlockSize":[1024,1024,64],"maxCtasPerSM":32,"maxGridSize":[2147483647,65535,65535],)"
    R"("maxRegistersPerSM":65536,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"memClockRateKHz":3201000,"multiProcessorCount":132,)"
    R"("memoryBusWidth":6144,"oversizedSharedMemoryPerBlock":0,"smCountOrigin":0,)"
    R"("pciDeviceId":0,"regsPerBlock":65536,"reservedSharedMemoryPerBlock":1024,"smClockRateKHz":1980000,)"
    R"("supportCoopLaunch":1,"totalGlobalMem":150110011392,"warpSize":32})";

// Plans are made for a device that is described: every engine that would run is found and compiled. In a process of its
// own, since it must meet our fake driver before any other.
constexpr int kOtherWords = 77;
[[noreturn]] void plan_on_an_h200_that_is_not_there() {
  if (!dlopen((kFakes / "libcuda-fake.so").c_str(), RTLD_NOW | RTLD_GLOBAL)) {
    fmt::print(stderr, "{}\n", dlerror());
    std::exit(2);
  }
  try {
    DnnDescriptor device(dnn::device_properties_descriptor);
    device.set_all(dnn::device_json, dnn::type_char, std::string_view(kH200));
    device.finalize();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    std::exit(kOtherWords);
  }
  try {
    for (const AttentionSpec& s : {spec(DType::f16, 64, 100, 8, 64, true), spec(DType::f16, 8, 1024, 4, 128, true),
                                   spec(DType::f16, 4, 4096, 8, 64, true), spec(DType::bf16, 3, 257, 3, 32, false),
                                   spec(DType::f16, 3, 1, 2, 16, true), spec(DType::bf16, 1, 33, 2, 256, false)}) {
      const DnnAttention attention(s, {.handle = nullptr, .device_json = kH200});
      if (attention.workspace_bytes() > std::size_t{1} << 20)
        throw_internal("{} bytes of workspace", attention.workspace_bytes());
      alignas(16) char memory[16];
      attention.arguments(memory, memory, memory);
      const DnnAttention again(s, {.handle = nullptr, .device_json = kH200}, attention.kept());
      if (again.workspace_bytes() != attention.workspace_bytes()) throw_internal("a kept plan is another one");
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    std::exit(1);
  }
  std::exit(0);
}

TEST(CudnnDeathTest, ItsEnginesKnowOurGraph) {
  GNOMON_SKIP_WITHOUT_FAKES();
  if (!cudnn_missing().empty()) GTEST_SKIP() << cudnn_missing();
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  int exit_code = -1;
  const auto planned = [&](int status) {
    exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return exit_code == 0 || exit_code == kOtherWords;
  };
  EXPECT_EXIT(plan_on_an_h200_that_is_not_there(), planned, "");
  if (exit_code == kOtherWords) GTEST_SKIP() << "cuDNN " << cudnn().version_text << " describes devices in other words";
}

#ifdef CUDNN_GRAPH_H_
TEST(Cudnn, OurDeclarationsAreNvidias) {
  const std::pair<int, int> pairs[] = {
      {dnn::success, CUDNN_STATUS_SUCCESS},
      {dnn::f32, CUDNN_DATA_FLOAT},
      {dnn::f16, CUDNN_DATA_HALF},
      {dnn::i32, CUDNN_DATA_INT32},
      {dnn::bf16, CUDNN_DATA_BFLOAT16},
      {dnn::boolean, CUDNN_DATA_BOOLEAN},
      {dnn::add, CUDNN_POINTWISE_ADD},
      {dnn::log, CUDNN_POINTWISE_LOG},
      {dnn::mul, CUDNN_POINTWISE_MUL},
      {dnn::div, CUDNN_POINTWISE_DIV},
      {dnn::sub, CUDNN_POINTWISE_SUB},
      {dnn::exp, CUDNN_POINTWISE_EXP},
      {dnn::cmp_ge, CUDNN_POINTWISE_CMP_GE},
      {dnn::gen_index, CUDNN_POINTWISE_GEN_INDEX},
      {dnn::binary_select, CUDNN_POINTWISE_BINARY_SELECT},
      {dnn::reduce_add, CUDNN_REDUCE_TENSOR_ADD},
      {dnn::reduce_max, CUDNN_REDUCE_TENSOR_MAX},
      {dnn::heur_a, CUDNN_HEUR_MODE_A},
      {dnn::pointwise_descriptor, CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
      {dnn::engine_config_descriptor, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR},
      {dnn::engine_heuristics_descriptor, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR},
      {dnn::execution_plan_descriptor, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR},
      {dnn::operation_pointwise_descriptor, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR},
      {dnn::operation_graph_descriptor, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
      {dnn::variant_pack_descriptor, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR},
      {dnn::tensor_descriptor, CUDNN_BACKEND_TENSOR_DESCRIPTOR},
      {dnn::matmul_descriptor, CUDNN_BACKEND_MATMUL_DESCRIPTOR},
      {dnn::operation_matmul_descriptor, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR},
      {dnn::reduction_descriptor, CUDNN_BACKEND_REDUCTION_DESCRIPTOR},
      {dnn::operation_reduction_descriptor, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR},
      {dnn::device_properties_descriptor, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR},
      {dnn::pointwise_mode, CUDNN_ATTR_POINTWISE_MODE},
      {dnn::pointwise_math_type, CUDNN_ATTR_POINTWISE_MATH_PREC},
      {dnn::pointwise_axis, CUDNN_ATTR_POINTWISE_AXIS},
      {dnn::heuristics_mode, CUDNN_ATTR_ENGINEHEUR_MODE},
      {dnn::heuristics_graph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH},
      {dnn::heuristics_results, CUDNN_ATTR_ENGINEHEUR_RESULTS},
      {dnn::heuristics_device, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP},
      {dnn::plan_handle, dnn::plan_engine_config - 1},  // its name is deprecated
      {dnn::plan_json, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION},
      {dnn::plan_device, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP},
      {dnn::plan_engine_config, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG},
      {dnn::plan_workspace_bytes, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE},
      {dnn::operation_pointwise_descriptor_at, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR},
      {dnn::operation_pointwise_x, CUDNN_ATTR_OPERATION_POINTWISE_XDESC},
      {dnn::operation_pointwise_b, CUDNN_ATTR_OPERATION_POINTWISE_BDESC},
      {dnn::operation_pointwise_y, CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
      {dnn::operation_pointwise_t, CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
      {dnn::graph_operations, CUDNN_ATTR_OPERATIONGRAPH_OPS},
      {dnn::graph_operations - 1, dnn::graph_handle},  // its name is deprecated
      {dnn::tensor_alignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT},
      {dnn::tensor_data_type, CUDNN_ATTR_TENSOR_DATA_TYPE},
      {dnn::tensor_dimensions, CUDNN_ATTR_TENSOR_DIMENSIONS},
      {dnn::tensor_strides, CUDNN_ATTR_TENSOR_STRIDES},
      {dnn::tensor_id, CUDNN_ATTR_TENSOR_UNIQUE_ID},
      {dnn::tensor_is_virtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL},
      {dnn::tensor_is_by_value, CUDNN_ATTR_TENSOR_IS_BY_VALUE},
      {dnn::pack_ids, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS},
      {dnn::pack_pointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS},
      {dnn::pack_workspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE},
      {dnn::matmul_math_type, CUDNN_ATTR_MATMUL_COMP_TYPE},
      {dnn::operation_matmul_a, CUDNN_ATTR_OPERATION_MATMUL_ADESC},
      {dnn::operation_matmul_b, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
      {dnn::operation_matmul_c, CUDNN_ATTR_OPERATION_MATMUL_CDESC},
      {dnn::operation_matmul_descriptor_at, CUDNN_ATTR_OPERATION_MATMUL_DESC},
      {dnn::reduction_operator, CUDNN_ATTR_REDUCTION_OPERATOR},
      {dnn::reduction_math_type, CUDNN_ATTR_REDUCTION_COMP_TYPE},
      {dnn::operation_reduction_x, CUDNN_ATTR_OPERATION_REDUCTION_XDESC},
      {dnn::operation_reduction_y, CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
      {dnn::operation_reduction_descriptor_at, CUDNN_ATTR_OPERATION_REDUCTION_DESC},
      {dnn::device_json, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION},
      {dnn::type_handle, CUDNN_TYPE_HANDLE},
      {dnn::type_data_type, CUDNN_TYPE_DATA_TYPE},
      {dnn::type_boolean, CUDNN_TYPE_BOOLEAN},
      {dnn::type_int64, CUDNN_TYPE_INT64},
      {dnn::type_pointer, CUDNN_TYPE_VOID_PTR},
      {dnn::type_heur_mode, CUDNN_TYPE_HEUR_MODE},
      {dnn::type_pointwise_mode, CUDNN_TYPE_POINTWISE_MODE},
      {dnn::type_descriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {dnn::type_reduction_operator, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE},
      {dnn::type_char, CUDNN_TYPE_CHAR},
  };
  for (const auto& [ours, theirs] : pairs) EXPECT_EQ(ours, theirs);
  EXPECT_EQ(sizeof(dnn::DataType), sizeof(cudnnDataType_t));
}
#endif

}  // namespace
}  // namespace gnomon::cuda
