// The CUDA backend on a device: every candidate against the float64 oracle, whatever the layout, mask and type.
#include "cuda/backend_fixture.hpp"

namespace gnomon::test {
namespace {

TEST_F(CudaBackendTest, PlainPathIsExact) {
  for (const char* text :
       {"b3 s10 d64 h4 l2 f128", "b2 s17 d64 h4 l2 f96 bi mask", "b2 s9 d32 h2 l2 f64 pre finalnorm mask",
        "b2 s5 d48 h3 l1 f13 relu nobias bi", "b1 s1 d16 h1 l1 f16", "b2 s7 d20 h4 l2 f24 gelu_tanh"}) {
    Posed posed(text, 1);
    expect_right(posed, kPlain, 0.05);
  }
}

TEST_F(CudaBackendTest, StackInFp32IsExact) {
  for (const char* text :
       {"b3 s10 d64 h4 l2 f128", "b2 s17 d64 h4 l2 f96 bi mask", "b2 s9 d32 h2 l2 f64 pre finalnorm mask",
        "b2 s9 d32 h2 l2 f64 post finalnorm mask inplace", "b4 s33 d128 h4 l3 f512 pre"}) {
    Posed posed(text, 2);
    expect_right(posed, kFormula, 0.05);
    expect_right(posed, std::string(kFormula) + " fused_norm=off", 0.05);
    expect_right(posed, std::string(kFormula) + " graph=off slices=1", 0.05);
    expect_right(posed, std::string(kFormula) + " graph=on slices=1", 0.05);
  }
}

// A test for each stack, so that shards and sanitizers can share them.
class CudaReducedPrecision : public CudaBackendTest, public testing::WithParamInterface<const char*> {};
class CudaResident : public CudaBackendTest, public testing::WithParamInterface<const char*> {};

TEST_P(CudaReducedPrecision, MeetsTheContract) {
  Posed posed(GetParam(), 3);
  for (const char* changes :
       {"precision=fp16 graph=on", "precision=fp16 graph=off gemm_gelu=off", "precision=fp16 fused_norm=off",
        "precision=fp16 fused_qkv=off", "precision=fp16 slices=1 graph=on", "precision=fp16 compact=on slices=1",
        "precision=fp32 ffn_precision=fp16", "precision=fp16 ffn_precision=fp32 graph=off",
        "precision=fp16 ffn_precision=tf32 compact=on slices=1", "precision=tf32 ffn_precision=fp16 fused_norm=off"})
    expect_right(posed, changes, posed.problem.dtype == DType::bf16 ? 4 : 1);
}
INSTANTIATE_TEST_SUITE_P(Stacks, CudaReducedPrecision,
                         testing::Values("b4 s100 d128 h4 l3 f512", "b3 s40 d128 h4 l2 f512 bi mask",
                                         "b2 s33 d256 h4 l2 f512 pre finalnorm mask", "b2 s64 d128 h2 l2 f256 relu",
                                         "b2 s20 d128 h4 l2 f512 gelu_tanh f16", "b2 s20 d128 h4 l2 f512 bf16",
                                         "b3 s20 d128 h4 l2 f512 inplace mask", "b2 s20 d128 h4 l2 f512 nobias"));

// As rows of 16 bits and a byte more: the first and the last residual are the caller's, and a final norm reads it too.
TEST_F(CudaBackendTest, ThePackedResidualMeetsTheContract) {
  for (const char* text : {"b4 s100 d512 h8 l3 f2048", "b3 s21 d128 h4 l2 f512 bi mask finalnorm",
                           "b2 s33 d100 h4 l1 f200 inplace", "b2 s20 d128 h4 l2 f512 f16 relu"}) {
    Posed posed(text, 3);
    for (const char* changes : {"graph=on", "graph=off slices=1", "compact=on"})
      expect_right(posed, std::string("precision=fp16 packed_residual=on ") + changes);
  }
  Posed posed("b2 s20 d128 h4 l2 f512 bf16", 3);
  expect_right(posed, "precision=bf16 packed_residual=on", 8);
}

// Of 2 * 3 * 37 rows an FFN of 5 d takes parts of 88: the last one overlaps the one before.
TEST_F(CudaBackendTest, TheCompactFormIsExactInFp32) {
  for (const char* text :
       {"b6 s37 d64 h4 l3 f320", "b6 s37 d64 h2 l2 f320 pre finalnorm bi mask", "b3 s9 d33 h3 l2 f40 inplace"}) {
    Posed posed(text, 4);
    for (const char* graph : {"graph=on", "graph=off"})
      expect_right(posed, std::string("precision=fp32 compact=on gemm_gelu=off ") + graph, 0.05);
  }
}

TEST_P(CudaResident, MeetsTheContract) {
  for (const Layout layout : {Layout::contiguous, Layout::column_slice, Layout::every_other_column}) {
    SCOPED_TRACE(name_of(layout));
    Posed posed(GetParam(), 20, MaskKind::holes, layout, layout);
    for (const char* changes : {"path=resident graph=on", "path=resident graph=off", "path=resident slices=1 graph=on"})
      expect_right(posed, changes);
  }
}
INSTANTIATE_TEST_SUITE_P(Stacks, CudaResident,
                         testing::Values("b4 s100 d128 h4 l3 f512", "b3 s40 d128 h4 l2 f512 bi mask",
                                         "b40 s100 d128 h4 l1 f128 mask", "b2 s33 d64 h4 l2 f128 pre finalnorm mask",
                                         "b2 s64 d128 h2 l2 f256 relu inplace", "b2 s20 d128 h4 l2 f512 gelu_tanh f16",
                                         "b2 s20 d128 h4 l2 f512 nobias inplace f16"));

TEST_F(CudaBackendTest, MasksOfEveryKind) {
  for (const MaskKind kind : kMaskKinds) {
    for (const char* text :
         {"b4 s37 d64 h4 l2 f128 mask", "b4 s37 d64 h4 l2 f128 bi mask", "b3 s130 d64 h2 l2 f128 bi mask"}) {
      SCOPED_TRACE(name_of(kind));
      Posed posed(text, 4, kind);
      expect_right(posed, kPlain, 0.05);
      expect_right(posed, "precision=fp16");
    }
  }
}

TEST_F(CudaBackendTest, LayoutsOfEveryKind) {
  for (const Layout layout : kOwnLayouts) {
    SCOPED_TRACE(name_of(layout));
    for (const char* type : {"f32", "f16"}) {
      Posed posed(std::string("b3 s12 d64 h4 l1 f128 mask ") + type, 5, MaskKind::right_padded, layout, layout);
      expect_right(posed, kPlain, 0.6);
      expect_right(posed, "precision=fp16");
      Posed inplace(std::string("b3 s12 d64 h4 l1 f128 inplace ") + type, 6, MaskKind::holes, layout);
      expect_right(inplace, "precision=fp16");
    }
  }
  Posed broadcast("b3 s12 d64 h4 l1 f128", 7, MaskKind::holes, Layout::broadcast);
  expect_right(broadcast, "precision=fp16");
}

TEST_F(CudaBackendTest, NanStaysInItsSequence) {
  Posed posed("b3 s12 d64 h4 l2 f128", 9);
  set_value(posed.input.view(), 1, 3, 5, std::nan(""));
  posed.expected = oracle(*posed.weights, posed.input.const_view(), std::nullopt);
  expect_right(posed, kPlain, 0.05);
  expect_right(posed, "precision=fp16");
}

// In parts, so that they can run side by side.
class CudaRandomProblems : public CudaBackendTest, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Parts, CudaRandomProblems, testing::Range(0, 14));

TEST_P(CudaRandomProblems, MeetTheContract) {
  Rng rng(100 + static_cast<std::uint64_t>(GetParam()));
  const auto pick = [&](auto... values) {
    const std::vector<std::common_type_t<decltype(values)...>> all{values...};
    return all[rng() % all.size()];
  };
  int run = 0, refused = 0;
  for (int i = 0; i < 15; ++i) {
    const int dim = pick(4, 7, 8, 13, 16, 20, 26, 32, 48, 64, 72, 80, 128), heads = pick(1, 2, 3, 4);
    std::string text = fmt::format("b{} s{} d{} h{} l{} ff{} {} {} {}", 1 + rng() % 5, 1 + rng() % 70, dim * heads,
                                   heads, pick(1, 2), pick(13, 32, 64, 96, 256), pick("causal", "bi"),
                                   pick("post", "pre"), pick("gelu", "gelu_tanh", "relu"));
    text += pick("", "", " mask") + std::string(pick("", "", " nobias")) + pick("", "", " finalnorm") +
            pick("", "", " f16") + pick("", "", " inplace");
    const Layout in = kOwnLayouts[rng() % std::size(kOwnLayouts)], out = kOwnLayouts[rng() % std::size(kOwnLayouts)];
    Posed posed(text, rng(), kMaskKinds[rng() % std::size(kMaskKinds)], in, out);
    SCOPED_TRACE(fmt::format("{}, input {}, output {}", text, name_of(in), name_of(out)));
    const auto backend = backend_for(posed);
    for (const std::string& changes :
         {std::string(kPlain), std::string(kFormula),
          fmt::format("precision={} ffn_precision={} graph={} gemm_gelu={} fused_qkv={} fused_norm={}",
                      pick("fp16", "tf32"), pick("same", "same", "fp32"), pick("on", "off"), pick("on", "off"),
                      pick("on", "off"), pick("on", "off")),
          fmt::format("precision={} ffn_precision=fp16 graph={} compact={}", pick("fp32", "tf32"), pick("on", "off"),
                      pick("on", "off")),
          fmt::format("precision=fp16 packed_residual=on graph={} compact={}", pick("on", "off"), pick("on", "off"))}) {
      const Candidate candidate = with(posed, *backend, changes);
      if (backend->refuses(posed.problem, {}, candidate)) {
        ++refused;
        continue;
      }
      std::unique_ptr<Plan> plan;
      try {
        plan = backend->prepare(posed.problem, candidate);
      } catch (const Error& error) {
        ASSERT_EQ(error.kind(), ErrorKind::environment) << error.what();
        ++refused;
        continue;
      }
      OnCard card(posed);
      plan->poison_scratch();
      plan->run(card.call());
      const Verdict verdict = card.judge(posed);
      EXPECT_TRUE(verdict.fault.empty() && verdict.worst <= 1) << changes << ": " << describe(verdict);
      ++run;
    }
  }
  fmt::print("{} candidates run, {} refused\n", run, refused);
  EXPECT_GT(run, 25);
}

}  // namespace
}  // namespace gnomon::test
