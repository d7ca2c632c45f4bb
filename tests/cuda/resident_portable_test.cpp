// The resident stack's portable form against the float64 oracle on a device, with rings as other devices have them;
// and, with none, what it refuses.
#include "cuda/resident_portable.hpp"

#include <gmock/gmock.h>

#include "cuda/kernels/resident_portable_layout.cuh"
#include "cuda/resident_choices.hpp"
#include "cuda/resident_on_device.hpp"

namespace gnomon::test {
namespace {

using cuda::ResidentForm;
using cuda::ResidentSpec;
using kernels::resident::PortableLayout;

ResidentForm portable(int sequences, bool paired = false, int step = 2) {
  return {.groups = sequences, .cluster = step, .paired_activation = paired, .portable = true};
}

constexpr int kRing99 = 99 << 10, kRing163 = 163 << 10;  // bytes that a block has on sm_86 and sm_89, and on sm_80

class ResidentPortable : public ResidentOnDevice {
 protected:
  void SetUp() override { OnDevice::SetUp(); }

  // Side by side.
  static void compile(const std::vector<ResidentSpec>& specs, const cuda::DeviceProperties& as = properties()) {
    std::vector<cuda::KernelSource> sources;
    for (const ResidentSpec& spec : specs) {
      for (const ResidentForm& form : cuda::portable_forms(spec, as))
        sources.push_back(cuda::resident_source(spec, form));
    }
    library().compiler().ahead(std::move(sources), device()->architecture());
  }

  static void expect_right(const Problem& problem, MaskKind kind, std::uint64_t seed) {
    compile({spec_of(problem)});
    ResidentOnDevice::expect_right(problem, kind, seed, cuda::portable_forms(spec_of(problem), properties()));
  }
  // As on a device that has so much shared memory.
  static void expect_right_in(int shared_bytes, const Problem& problem, MaskKind kind, std::uint64_t seed) {
    const ResidentSpec spec = spec_of(problem);
    cuda::DeviceProperties device = properties();
    device.max_shared_bytes = std::min(device.max_shared_bytes, shared_bytes);
    SCOPED_TRACE(fmt::format("{} bytes of shared memory", device.max_shared_bytes));
    compile({spec}, device);
    EXPECT_FALSE(cuda::portable_forms(spec, device).empty());
    for (const ResidentForm& form : cuda::portable_forms(spec, device)) {
      ResidentOnDevice::expect_right(problem, kind, seed, {form}, [&](auto& launch) {
        launch.params.stages = cuda::portable_stages(spec, form, device);
        launch.shape = cuda::portable_shape(spec, form, device);
      });
    }
  }
};

TEST_F(ResidentPortable, SuiteShapes) {
  expect_right(parse_problem("b1 s100 d128 h4 l3 f512"), MaskKind::all_true, 1);
  expect_right(parse_problem("b64 s100 d128 h4 l3 f512"), MaskKind::all_true, 2);
}

TEST_F(ResidentPortable, RingsOfOtherDevices) {
  for (const int bytes : {kRing99, kRing163}) {
    expect_right_in(bytes, parse_problem("b140 s100 d128 h4 l1 f512"), MaskKind::all_true, 3);
    expect_right_in(bytes, parse_problem("b7 s112 d128 h2 l2 f256 bi pre"), MaskKind::all_true, 4);
    expect_right_in(bytes, parse_problem("b3 s185 d64 h1 l2 f128 mask"), MaskKind::holes, 5);
  }
}

TEST_F(ResidentPortable, MoreSequencesThanTheGridHolds) {
  expect_right(parse_problem("b1100 s16 d128 h8 l1 f128"), MaskKind::all_true, 6);
  expect_right(parse_problem("b700 s37 d64 h4 l2 f64"), MaskKind::all_true, 7);
}

TEST_F(ResidentPortable, EveryMask) {
  for (const MaskKind kind : kMaskKinds) {
    expect_right(parse_problem("b3 s100 d128 h4 l2 f256 mask"), kind, 8);
    expect_right(parse_problem("b3 s61 d64 h2 l2 f128 bi pre mask"), kind, 9);
  }
}

TEST_F(ResidentPortable, WideHeadsAndOtherActivations) {
  expect_right(parse_problem("b3 s128 d128 h1 l2 f256 bi mask gelu_tanh"), MaskKind::holes, 10);
  expect_right(parse_problem("b3 s191 d64 h1 l2 f128 pre finalnorm relu nobias"), MaskKind::all_true, 11);
}

TEST_F(ResidentPortable, RandomStacks) {
  Rng rng(test_seed());
  std::vector<DrawnStack> cases;
  std::vector<ResidentSpec> specs;
  for (int i = 0; i < test_count(12); ++i) {
    const auto batch = one_of<std::int64_t>(rng, {1, 2, 3, 140});
    const auto seq = 1 + static_cast<std::int64_t>(rng() % (batch > 3 ? 48 : 128));
    cases.push_back(draw_stack(rng, batch, seq, {64, 128}));
    specs.push_back(spec_of(cases.back().problem));
  }
  compile(specs);
  for (const auto& [problem, kind, seed] : cases) expect_right(problem, kind, seed);
}

cuda::DeviceProperties ada() {
  cuda::DeviceProperties p;
  p.major = 8, p.minor = 9, p.multiprocessors = 142, p.max_shared_bytes = kRing99;
  return p;
}

TEST(PortableForms, SayWhyNot) {
  cuda::DeviceProperties device = ada();
  ResidentSpec spec{.batch = 1, .seq = 100};
  EXPECT_EQ(cuda::portable_forms(spec, device), (std::vector{portable(1, false, 1), portable(1, true, 1)}));
  for (const ResidentForm& form : cuda::portable_forms(spec, device))
    EXPECT_EQ(ResidentForm::parse(form.to_string()), form);
  EXPECT_EQ(portable(1).to_string(), "portable-s1-w2");
  EXPECT_EQ(portable(4, true, 1).to_string(), "portable-s4-w1-paired");
  EXPECT_FALSE(ResidentForm::parse("portable-s3-w2"));

  const auto refusal = [&](const ResidentForm& form) {
    return cuda::refuses_resident(spec, form, device).value_or("");
  };
  EXPECT_THAT(refusal(portable(2)), testing::HasSubstr("8 warps of 16 tokens at d_model 128, 2 x 100"));
  spec.seq = 129;
  EXPECT_THAT(refusal(portable(1)), testing::HasSubstr("1 x 129"));
  spec.seq = 112;
  EXPECT_THAT(refusal(portable(1)), testing::HasSubstr("three steps of 16384 bytes"));
  EXPECT_EQ(refusal(portable(1, false, 1)), "");
  spec.seq = 128;
  EXPECT_THAT(refusal(portable(1, false, 1)), testing::HasSubstr("of 101376 bytes of shared memory"));
  device.max_shared_bytes = 163 << 10;
  EXPECT_EQ(refusal(portable(1)), "");
  device = ada();
  spec.config.d_ff = 500;
  EXPECT_THAT(refusal(portable(1)), testing::HasSubstr("500"));
  spec.config = {.d_model = 256, .d_ff = 1024};
  EXPECT_THAT(refusal(portable(1)), testing::HasSubstr("not 256"));
  spec.config = {.n_heads = 16};
  EXPECT_THAT(refusal(portable(1)), testing::HasSubstr("not 8"));
  spec.config = {.d_model = 64, .d_ff = 128};
  EXPECT_THAT(refusal(portable(1)), testing::HasSubstr("steps of 1 piece"));
  spec.config = {.activation = Activation::relu};
  EXPECT_THAT(refusal(portable(1, true)), testing::HasSubstr("ReLU"));
  device.major = 7, device.minor = 5;
  EXPECT_THAT(refusal(portable(1)), testing::HasSubstr("7.5"));
}

// More sequences to a CTA where there are more of them than multiprocessors.
TEST(PortableForms, ShareACtaWhereThereAreManySequences) {
  const auto sequences = [](std::int64_t batch, std::int64_t seq) {
    std::vector<int> all;
    cuda::DeviceProperties device = ada();
    device.max_shared_bytes = kRing163;
    for (const ResidentForm& form : cuda::portable_forms({.batch = batch, .seq = seq}, device)) {
      if (!form.paired_activation) all.push_back(form.groups);
    }
    return all;
  };
  EXPECT_EQ(sequences(142, 16), (std::vector{1}));
  EXPECT_EQ(sequences(143, 16), (std::vector{1, 2}));
  EXPECT_EQ(sequences(10'000, 16), (std::vector{1, 2, 4, 8}));
  EXPECT_EQ(sequences(10'000, 33), (std::vector{1, 2}));
}

// Each piece of a layer once, in an order in which none is needed before those that it follows.
TEST(PortableForms, ReadEveryPieceOnce) {
  for (const int model : {64, 128}) {
    for (const int chunks : {1, 2, 3, 4}) {
      kernels::resident::Choices c{};
      c.seq = 100, c.model = model, c.heads = 4, c.hidden = chunks * model, c.groups = 1, c.cluster = 1;
      const PortableLayout layout(c);
      std::vector<int> pieces;
      for (int i = 0; i < layout.layer_pieces; ++i) pieces.push_back(layout.piece_at(i));
      std::ranges::sort(pieces);
      for (int i = 0; i < layout.layer_pieces; ++i) EXPECT_EQ(pieces[static_cast<std::size_t>(i)], i);
      EXPECT_EQ(layout.layer_pieces * kernels::resident::kPieceBytes, layout.layer_tiles * layout.tile_bytes);
    }
  }
}

}  // namespace
}  // namespace gnomon::test
