#include "cuda/choices.hpp"

#include <gtest/gtest.h>

#include "core/expect_error.hpp"
#include "cuda/choice_facts.hpp"
#include "cuda/search_space.hpp"
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif
#include "cuda/cublaslt.hpp"
#include "cuda/cudnn.hpp"
#include "cuda/stack_pass.hpp"

namespace gnomon::cuda {
namespace {

TEST(CudaChoices, CandidatesAreReadAndWritten) {
  Choices c;
  c.precision = Precision::bf16;
  c.algo_fc2 = 11;
  c.slices = 12;
  c.graph = false;
  c.tile = "streamed-w4-r1-k64";
  const Candidate candidate = to_candidate(c);
  EXPECT_EQ(to_candidate(parse_choices(candidate)), candidate);
  EXPECT_EQ(candidate.get("slices"), "12");
  EXPECT_EQ(to_candidate(Choices{}).get("slices"), "all");
  const auto parse = [](const char* text) { return parse_choices(Candidate::parse(text)); };
  expect_error(ErrorKind::caller, "algo_qkv: expected a number from 0 to 11, got '12'", [&] { parse("algo_qkv=12"); });
  expect_error(ErrorKind::caller, "precision: expected one of fp32, tf32, fp16, bf16", [&] { parse("precision=fp8"); });
  expect_error(ErrorKind::caller, "slices: expected a number from 1", [&] { parse("slices=0"); });
  expect_error(ErrorKind::caller, "'chunk' is no choice of the CUDA backend; it has path,", [&] { parse("chunk=1"); });
}

DeviceProperties h200() {
  return {.name = "NVIDIA H200",
          .major = 9,
          .minor = 0,
          .multiprocessors = 132,
          .max_shared_bytes = 227 << 10,
          .shared_bytes_per_multiprocessor = 228 << 10,
          .max_threads_per_multiprocessor = 2048,
          .l2_bytes = 60 << 20,
          .total_bytes = std::int64_t{140} << 30,
          .clock_hz = 1.98e9,
          .memory_bytes_per_second = 4.8e12};
}

std::string reason(const char* problem, const std::string& changes, const Constraints& constraints = {}) {
  const Problem p = parse_problem(problem);
  const Candidate base = to_candidate(estimate_stack(p, {}, h200()));
  const auto refusal = refuses(p, constraints, base.with(Candidate::parse(changes).choices()), h200());
  return refusal ? refusal->reason : "";
}

TEST(CudaSearchSpace, WhatCannotRunIsRefusedWithItsReason) {
  EXPECT_EQ(reason("b64 s100", "precision=fp16"), "");
  EXPECT_THAT(reason("b64 s100", "path=plain"), testing::HasSubstr("every switch off"));
  EXPECT_THAT(reason("b64 s100", "precision=bf16", {.fp32_only = true}), testing::HasSubstr("fp32_only"));
  EXPECT_THAT(reason("b64 s100", "gemm_gelu=on", {.exact_activation = true}), testing::HasSubstr("tanh"));
  EXPECT_EQ(reason("b64 s100", "gemm_gelu=off", {.exact_activation = true}), "");
  EXPECT_EQ(reason("b64 s100 relu", "gemm_gelu=on", {.exact_activation = true}), "");
  EXPECT_THAT(reason("b64 s100", "causal_skip=off"), testing::HasSubstr("causal_skip"));
  EXPECT_THAT(reason("b64 s100", "slices=64"), testing::HasSubstr("slices=all"));
  EXPECT_THAT(reason("b64 s100", "tile=round"), testing::HasSubstr("'round'"));
  EXPECT_THAT(reason("b32 s100000 d1024 h16 f4096", "slices=all", {.memory_limit = std::int64_t{8} << 30}),
              testing::HasSubstr("memory_limit is 8.0 GiB"));
}

TEST(CudaSearchSpace, SublayersHaveTheirOwnPrecisionWhere16BitsAreNotForAll) {
  EXPECT_EQ(reason("b64 s100", "precision=fp32 ffn_precision=fp16"), "");
  EXPECT_EQ(reason("b64 s100", "precision=fp16 ffn_precision=tf32 compact=on"), "");
  EXPECT_EQ(reason("b64 s100", "precision=fp16 ffn_precision=fp16"), "");
  EXPECT_EQ(reason("b64 s100", "path=resident ffn_precision=fp16"), "");
  EXPECT_THAT(reason("b64 s100", "precision=fp16 ffn_precision=bf16"), testing::HasSubstr("do not meet"));
  EXPECT_THAT(reason("b64 s100", "precision=fp32 ffn_precision=fp16", {.fp32_only = true}),
              testing::HasSubstr("fp32_only"));
  EXPECT_THAT(reason("b64 s100", "path=resident ffn_precision=fp32"), testing::HasSubstr("all fusions in one"));

  const Problem p = parse_problem("b64 s100 d512 h8 l12 f2048");
  const auto pairs = [&](Precision precision, std::optional<Precision> ffn) {
    Choices c = estimate_stack(p, {}, h200());
    c.precision = precision;
    c.ffn_precision = ffn;
    std::vector<std::string> names;
    for (const Group& group : search_groups(p, c, h200())) {
      if (group.name != "sublayers") continue;
      for (const auto& changes : group.alternatives) {
        const Candidate candidate(changes);
        EXPECT_FALSE(refuses(p, {}, candidate, h200())) << candidate.to_string();
        names.push_back(candidate.get("precision") + "+" + candidate.get("ffn_precision"));
      }
    }
    return names;
  };
  EXPECT_THAT(pairs(Precision::fp16, {}), testing::IsEmpty());
  EXPECT_THAT(pairs(Precision::fp32, Precision::fp16), testing::IsEmpty());
  for (const Precision uniform : {Precision::fp32, Precision::tf32})
    EXPECT_THAT(pairs(uniform, {}),
                testing::ElementsAre("tf32+fp16", "fp16+tf32", "fp32+fp16", "fp16+fp32", "tf32+bf16", "bf16+tf32",
                                     "fp32+bf16", "bf16+fp32", "fp32+tf32", "tf32+fp32"));

  const auto forcing = [](const char* choices) { return Constraints{.forced = Candidate::parse(choices).choices()}; };
  const char* const mixed = "precision=fp32 ffn_precision=fp16";
  EXPECT_THAT(reason("b64 s100", mixed, forcing("precision=fp32")), testing::HasSubstr("precision is forced"));
  EXPECT_EQ(reason("b64 s100", mixed, forcing(mixed)), "");
  EXPECT_EQ(reason("b64 s100", mixed, forcing("ffn_precision=fp16")), "");
}

TEST(CudaSearchSpace, ThePackedResidualIsOf16BitsInAPostNormStack) {
  EXPECT_EQ(reason("b64 s100", "packed_residual=on"), "");
  EXPECT_EQ(reason("b64 s100", "packed_residual=on precision=bf16 compact=on"), "");
  for (const char* changes : {"precision=fp32", "precision=tf32", "ffn_precision=fp32", "fused_norm=off"})
    EXPECT_THAT(reason("b64 s100", std::string("packed_residual=on ") + changes), testing::HasSubstr("packed_residual"))
        << changes;
  EXPECT_THAT(reason("b64 s100 pre", "packed_residual=on"), testing::HasSubstr("post-norm"));
  const Problem p = parse_problem("b32 s100000 d1024 h16 f4096 f16 inplace");
  Choices packed = estimate_stack(p, {}, h200());
  const auto scratch = [&] { return stack_scratch_bytes(p.config, packed, 1, p.seq, p.dtype, p.mask, false, p.seq); };
  const std::size_t wide = scratch();
  packed.packed_residual = true;
  EXPECT_EQ(wide - scratch(), std::size_t{3 * 100'000 * 1024});
}

TEST(CudaChoiceFacts, EachSublayersPrecisionIsNamed) {
  const auto labels = [](Precision precision, std::optional<Precision> ffn) {
    Choices c;
    c.precision = precision;
    c.ffn_precision = ffn;
    c.gemm_gelu = false;
    return approximations(parse_problem("b64 s100").config, c);
  };
  EXPECT_THAT(labels(Precision::fp32, {}), testing::IsEmpty());
  EXPECT_THAT(labels(Precision::fp16, {}), testing::ElementsAre("all products and attention in fp16"));
  EXPECT_THAT(labels(Precision::tf32, {}), testing::ElementsAre("all products in tf32"));
  EXPECT_THAT(labels(Precision::fp32, Precision::fp16), testing::ElementsAre("the FFN's products in fp16"));
  EXPECT_THAT(labels(Precision::bf16, Precision::tf32),
              testing::ElementsAre("attention's products and attention in bf16", "the FFN's products in tf32"));
}

// On Hopper where the other forms cannot run it, and by force; elsewhere always.
TEST(CudaSearchSpace, TheResidentKernelsPortableFormIsTriedWhereThereIsNoOther) {
  cuda::DeviceProperties ada = h200();
  ada.major = 8, ada.minor = 9, ada.multiprocessors = 142, ada.max_shared_bytes = 99 << 10;
  const auto forms = [](const char* text, const DeviceProperties& device) {
    const Problem p = parse_problem(text);
    std::vector<std::string> names;
    for (const Group& group : search_groups(p, estimate_stack(p, {}, device), device)) {
      if (group.name != "resident") continue;
      for (const auto& alternative : group.alternatives) names.push_back(Candidate(alternative).get("tile"));
    }
    return names;
  };
  EXPECT_THAT(forms("b64 s100", h200()), testing::Each(testing::Not(testing::StartsWith("portable"))));
  EXPECT_THAT(forms("b64 s100", ada), testing::ElementsAre("portable-s1-w1", "portable-s1-w1-paired"));
  EXPECT_THAT(forms("b64 s100 d256 f1024", ada), testing::IsEmpty());
  EXPECT_EQ(estimate_choices(parse_problem("b64 s100"), {}, ada).path, Path::resident);
  EXPECT_EQ(reason("b64 s100", "path=resident tile=portable-s1-w2-paired"), "");
  EXPECT_THAT(reason("b64 s100", "path=resident tile=portable-s1-w2-paired", {.exact_activation = true}),
              testing::HasSubstr("exact_activation"));
}

TEST(CudaSearchSpace, AttentionOfCudnnIsTriedWhereNumbersAreNarrow) {
  const auto last_tile = [](const char* text, Precision precision) {
    const Problem p = parse_problem(text);
    Choices c = estimate_stack(p, {}, h200());
    c.precision = precision;
    for (const Group& group : search_groups(p, c, h200())) {
      if (group.name == "tile") return group.alternatives.back().front().value;
    }
    return std::string();
  };
  EXPECT_EQ(last_tile("b4 s4096 d512 h8 f2048", Precision::fp16), "cudnn");
  EXPECT_EQ(last_tile("b4 s4096 d512 h8 f2048 mask", Precision::bf16), "cudnn");  // to be refused with its reason
  EXPECT_THAT(last_tile("b4 s4096 d512 h8 f2048", Precision::fp32), testing::StartsWith("fp32"));
  EXPECT_EQ(reason("b4 s4096 d512 h8 f2048", "tile=cudnn"), cudnn_missing());
  EXPECT_THAT(reason("b4 s4096 d512 h8 f2048 mask", "tile=cudnn"), testing::HasSubstr("only the device knows"));
  EXPECT_THAT(reason("b4 s100 d80 h4 f256", "tile=cudnn"), testing::HasSubstr("this one is 20"));
  EXPECT_THAT(reason("b4 s100", "tile=cudnn precision=fp32"), testing::HasSubstr("not f32"));
  EXPECT_THAT(reason("b64 s100", "path=resident tile=cudnn"), testing::HasSubstr("'cudnn'"));
}

TEST(CudaSearchSpace, TheResidentKernelIsTheEstimateWhereItRuns) {
  const auto path = [](const char* text, const Constraints& constraints = {}) {
    return to_candidate(estimate_choices(parse_problem(text), constraints, h200())).get("path");
  };
  EXPECT_EQ(path("b64 s100"), "resident");
  EXPECT_EQ(path("b64 s100", {.fp32_only = true}), "stack");
  EXPECT_EQ(path("b64 s100", {.exact_activation = true}), "resident");
  EXPECT_EQ(path("b64 s129"), "resident");
  EXPECT_EQ(path("b64 s257"), "stack");
  EXPECT_EQ(path("b64 s100 d256 f1024"), "resident");
  EXPECT_EQ(path("b64 s100 d384 f1536"), "stack");
  EXPECT_THAT(reason("b64 s100", "path=resident gemm_gelu=off"), testing::HasSubstr("all fusions in one"));
  EXPECT_THAT(reason("b64 s100", "path=resident tile=g9"), testing::HasSubstr("'g9'"));
  EXPECT_THAT(reason("b64 s100 d384 f1536", "path=resident"), testing::HasSubstr("384"));
  EXPECT_THAT(reason("b8 s100 d512 h8 f2048", "path=resident"), testing::HasSubstr("8 sequences; tile=wide-c2"));
  EXPECT_EQ(reason("b8 s100 d512 h8 f2048", "path=resident tile=wide-c2"), "");
  EXPECT_THAT(reason("b64 s105 d512 h8 f2048", "path=resident"), testing::HasSubstr("105"));
}

// Shape 14 on a card of 12 GB: 6.1 GiB of tensor and 2 beside it in 16 bits, and in fp32 the tensor alone is too large.
TEST(CudaSearchSpace, TheEstimateFitsTheMemoryLimit) {
  const Problem half = parse_problem("b32 s100000 d1024 h16 f4096 f16 inplace");
  const Problem single = parse_problem("b32 s100000 d1024 h16 f4096 inplace");
  const auto gibibytes = [](double n) { return static_cast<std::int64_t>(n * (1 << 30)); };
  struct Row {
    const Problem& problem;
    bool fp32_only;
    double limit;
    bool compact;
  };
  for (const auto& [problem, fp32_only, limit, compact] :
       {Row{half, false, 11.99, false}, Row{half, false, 8.1, true}, Row{half, true, 8.1, true},
        Row{single, true, 14.7, false}, Row{single, true, 14.0, true}, Row{single, false, 14.6, true}}) {
    SCOPED_TRACE(to_string(problem) + " in " + std::to_string(limit));
    const Constraints constraints{.fp32_only = fp32_only, .memory_limit = gibibytes(limit)};
    const Choices c = estimate_choices(problem, constraints, h200());
    EXPECT_EQ(c.compact, compact);
    if (compact) EXPECT_EQ(c.slices, 1);
    const auto refusal = refuses(problem, constraints, to_candidate(c), h200());
    EXPECT_FALSE(refusal) << refusal->reason;
  }
  const Constraints card{.memory_limit = gibibytes(11.99)};
  const auto refusal = refuses(single, card, to_candidate(estimate_choices(single, card, h200())), h200());
  ASSERT_TRUE(refusal);
  EXPECT_THAT(refusal->reason, testing::HasSubstr("tensors 12.2 GiB"));
  EXPECT_THAT(refusal->reason, testing::HasSubstr("memory_limit is 12.0 GiB"));
}

TEST(CudaSearchSpace, TheCompactFormIsOfFusedKernels) {
  EXPECT_EQ(reason("b64 s100", "compact=on"), "");
  for (const char* changes : {"compact=on fused_norm=off",
                              "compact=on fused_attention=off causal_skip=off mask_elision=off fused_qkv=off "
                              "precision=fp32"})
    EXPECT_THAT(reason("b64 s100", changes), testing::HasSubstr("compact=on needs")) << changes;
}

TEST(CudaSearchSpace, EveryGroupHasARunnableAlternative) {
  for (const char* text : {"b64 s100", "b1 s100 mask", "b4 s4096 d512 h8 f2048", "b64 s100 d256 f1024 bi"}) {
    const Problem p = parse_problem(text);
    for (const char* changed : {"precision=fp16", "packed_residual=on", "precision=tf32 tile=first",
                                "precision=fp32 ffn_precision=fp16 tile=first"}) {
      const Candidate incumbent = to_candidate(estimate_stack(p, {}, h200())).with(Candidate::parse(changed).choices());
      for (const Group& group : search_groups(p, parse_choices(incumbent), h200())) {
        int runnable = 0;
        for (const auto& changes : group.alternatives)
          runnable += !refuses(p, {}, incumbent.with(changes), h200()).has_value();
        EXPECT_GT(runnable, 0) << text << " " << changed << " " << group.name;
      }
    }
  }
}

#if __has_include(<cublasLt.h>)
TEST(CublasLt, OurDeclarationsAreNvidias) {
  EXPECT_EQ(int{lt::r_16bf}, int{CUDA_R_16BF});
  EXPECT_EQ(int{lt::r_16f}, int{CUDA_R_16F});
  EXPECT_EQ(int{lt::compute_32f}, int{CUBLAS_COMPUTE_32F});
  EXPECT_EQ(int{lt::compute_32f_fast_tf32}, int{CUBLAS_COMPUTE_32F_FAST_TF32});
  EXPECT_EQ(int{lt::not_supported}, int{CUBLAS_STATUS_NOT_SUPPORTED});
  EXPECT_EQ(int{lt::epilogue_gelu_bias}, int{CUBLASLT_EPILOGUE_GELU_BIAS});
  EXPECT_EQ(int{lt::epilogue_relu_bias}, int{CUBLASLT_EPILOGUE_RELU_BIAS});
  EXPECT_EQ(int{lt::desc_transa}, int{CUBLASLT_MATMUL_DESC_TRANSA});
  EXPECT_EQ(int{lt::desc_bias_pointer}, int{CUBLASLT_MATMUL_DESC_BIAS_POINTER});
  EXPECT_EQ(int{lt::desc_bias_type}, int{CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE});
  EXPECT_EQ(int{lt::layout_batch_stride}, int{CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET});
  EXPECT_EQ(int{lt::preference_workspace}, int{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES});
  EXPECT_EQ(int{lt::preference_alignment_d}, int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES});
  EXPECT_EQ(sizeof(lt::Algo), sizeof(cublasLtMatmulAlgo_t));
  EXPECT_EQ(sizeof(lt::HeuristicResult), sizeof(cublasLtMatmulHeuristicResult_t));
  EXPECT_EQ(offsetof(lt::HeuristicResult, waves), offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));
}
#endif

}  // namespace
}  // namespace gnomon::cuda
