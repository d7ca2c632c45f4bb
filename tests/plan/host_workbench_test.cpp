#include "plan/host_workbench.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "core/error.hpp"
#include "core/half.hpp"
#include "plan/fake.hpp"

namespace gnomon {
namespace {

float load(const ConstTensorView& view, std::int64_t b, std::int64_t s, std::int64_t i) {
  const std::int64_t at = b * view.strides[0] + s * view.strides[1] + i * view.strides[2];
  if (view.dtype == DType::f32) return static_cast<const float*>(view.data)[at];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(view.data)[at];
  return view.dtype == DType::f16 ? f16_to_float(bits) : bf16_to_float(bits);
}

void store(const TensorView& view, std::int64_t b, std::int64_t s, std::int64_t i, float value) {
  const std::int64_t at = b * view.strides[0] + s * view.strides[1] + i * view.strides[2];
  if (view.dtype == DType::f32) {
    static_cast<float*>(view.data)[at] = value;
  } else {
    static_cast<std::uint16_t*>(view.data)[at] = view.dtype == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
  }
}

void halve(const Call& call) {  // a "stack" that works on any strides and in place
  for (std::int64_t b = 0; b < call.input.shape[0]; ++b) {
    for (std::int64_t s = 0; s < call.input.shape[1]; ++s) {
      for (std::int64_t i = 0; i < call.input.shape[2]; ++i) store(call.output, b, s, i, load(call.input, b, s, i) / 2);
    }
  }
}

struct FunctionPlan final : Plan {
  explicit FunctionPlan(std::function<void(const Call&)> f) : function(std::move(f)) {}
  void run(const Call& call) override { function(call); }
  std::int64_t scratch_bytes() const override { return 0; }
  std::function<void(const Call&)> function;
};

struct Tensors {
  Tensors(DType dtype, std::array<std::int64_t, 3> shape, std::array<std::int64_t, 3> strides, bool inplace) {
    std::int64_t before = 0, after = 0;
    for (std::size_t i = 0; i < 3; ++i) ((strides[i] < 0) ? before : after) += (shape[i] - 1) * strides[i];
    const std::int64_t extent = after - before + 1;
    for (auto* memory : {&in, &out}) memory->assign(static_cast<std::size_t>(extent) * size_of(dtype), std::byte{0});
    call.input = {in.data() - before * static_cast<std::int64_t>(size_of(dtype)), dtype, shape, strides};
    call.output = {out.data() - before * static_cast<std::int64_t>(size_of(dtype)), dtype, shape, strides};
    TensorView writable{in.data() - before * static_cast<std::int64_t>(size_of(dtype)), dtype, shape, strides};
    if (inplace) call.output = writable;
    for (std::int64_t b = 0; b < shape[0]; ++b) {
      for (std::int64_t s = 0; s < shape[1]; ++s) {
        for (std::int64_t i = 0; i < shape[2]; ++i)
          store(writable, b, s, i, static_cast<float>((b * 7 + s * 5 + i * 3) % 17 - 8));
      }
    }
    problem.batch = shape[0], problem.seq = shape[1], problem.config.d_model = shape[2];
    problem.dtype = dtype;
    problem.inplace = inplace;
  }
  std::vector<std::byte> in, out;
  Call call;
  Problem problem;
};

struct Layout {
  std::array<std::int64_t, 3> shape, strides;
};

TEST(HostWorkbench, WhatDoesNotFitIsRefusedWithNumbersBeforeItIsTouched) {
  Tensors tensors(DType::f32, {1, 1, 8}, {0, 0, 1}, false);
  tensors.call.input.shape = tensors.call.output.shape = {std::int64_t{1} << 40, 1, 8};
  try {
    const HostWorkbench bench(tensors.problem, tensors.call, halve);
    FAIL() << "64 TiB were to be had";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    EXPECT_NE(std::string(error.what()).find("need 64.0 TiB"), std::string::npos) << error.what();
  }
}

TEST(HostWorkbench, EveryDTypeLayoutAndPlaceIsJudgedWithoutTouchingTheCallersMemory) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const bool inplace : {false, true}) {
      for (const Layout& layout :
           {Layout{{3, 4, 8}, {32, 8, 1}}, Layout{{3, 4, 8}, {8, 24, 1}}, Layout{{3, 4, 8}, {-32, 8, 1}},
            Layout{{3, 4, 8}, {48, 12, 1}}, Layout{{3, 4, 8}, {4096, 512, 1}}, Layout{{3, 4, 8}, {32, 1, 4}}}) {
        Tensors tensors(dtype, layout.shape, layout.strides, inplace);
        const auto in = tensors.in, out = tensors.out;
        HostWorkbench bench(tensors.problem, tensors.call, halve);
        EXPECT_EQ(bench.input_range().high, 8);
        FunctionPlan good(halve);
        for (int i = 0; i < 3; ++i) {
          const Verdict verdict = bench.check(good);
          EXPECT_EQ(verdict.worst, 0) << verdict.fault;
          EXPECT_EQ(verdict.fault, "");
          bench.before_timed_run();
          bench.run(good);
        }
        FunctionPlan lazy([](const Call&) {});
        EXPECT_GT(bench.check(lazy).worst, 1);
        EXPECT_EQ(tensors.in, in);
        EXPECT_EQ(tensors.out, out);
      }
    }
  }
}

TEST(HostWorkbench, WritesOutsideAreFaults) {
  struct Row {
    Layout layout;
    std::int64_t at;
    bool outside;
  };
  for (const Row& row : {Row{{{2, 2, 4}, {8, 4, 1}}, 16, true}, Row{{{2, 2, 4}, {8, 4, 1}}, -1, true},
                         Row{{{2, 2, 4}, {8, 4, 1}}, 1000, true}, Row{{{2, 2, 4}, {12, 6, 1}}, 4, true},
                         Row{{{2, 2, 4}, {12, 6, 1}}, 6, false}}) {
    Tensors tensors(DType::f32, row.layout.shape, row.layout.strides, false);
    HostWorkbench bench(tensors.problem, tensors.call, halve);
    FunctionPlan bad([&](const Call& call) {
      float* const at = static_cast<float*>(call.output.data) + row.at;
      *at = 1;
      halve(call);
    });
    EXPECT_EQ(bench.check(bad).fault, row.outside ? "wrote outside the output" : "") << row.at;
    FunctionPlan good(halve);
    EXPECT_EQ(bench.check(good).fault, "") << "the guards are set anew for everybody";
  }
}

TEST(HostWorkbench, TheOutputIsPoisonedBeforeEveryCheck) {
  Tensors tensors(DType::f32, {2, 2, 4}, {8, 4, 1}, false);
  HostWorkbench bench(tensors.problem, tensors.call, halve);
  FunctionPlan good(halve);
  EXPECT_EQ(bench.check(good).worst, 0);
  FunctionPlan looks([](const Call& call) {
    EXPECT_TRUE(
        std::isnan(load({call.output.data, call.output.dtype, call.output.shape, call.output.strides}, 1, 1, 3)));
  });
  EXPECT_TRUE(std::isinf(bench.check(looks).worst));
}

TEST(HostWorkbench, InputMaxIsOfFiniteValues) {
  Tensors tensors(DType::f32, {2, 2, 4}, {8, 4, 1}, false);
  float* const in = reinterpret_cast<float*>(tensors.in.data());
  in[0] = INFINITY, in[1] = NAN, in[2] = -12.5f;
  HostWorkbench bench(tensors.problem, tensors.call, halve);
  EXPECT_EQ(bench.input_range().high, 12.5);
  FunctionPlan good(halve);
  EXPECT_EQ(bench.check(good).worst, 0);  // NaN and infinity where the reference has them
}

TEST(HostWorkbench, TheReferenceIsAskedForAContiguousFp32Answer) {
  Tensors tensors(DType::bf16, {2, 3, 4}, {-12, 4, 1}, true);
  int asked = 0;
  HostWorkbench bench(tensors.problem, tensors.call, [&](const Call& call) {
    ++asked;
    EXPECT_EQ(call.output.dtype, DType::f32);
    EXPECT_EQ(call.output.strides, (std::array<std::int64_t, 3>{12, 4, 1}));
    EXPECT_EQ(call.input.data, tensors.call.input.data);
    EXPECT_NE(call.output.data, call.input.data);
    halve(call);
  });
  EXPECT_EQ(asked, 1);
}

TEST(Backend, KeepsCopiesOfAnyLayoutAndLooksAtNothingAfterwards) {
  for (const bool inplace : {false, true}) {
    fake::World world(inplace ? "b3 s4 d8 h1 l1 f8 mask inplace" : "b3 s4 d8 h1 l1 f8 mask");
    std::vector<float> wide(3 * 4 * 16 + 16);
    for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<float>(i);
    std::vector<std::uint8_t> mask(2 * 12);
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 6 != 0;
    world.call.input.data = wide.data() + 3;
    world.call.input.strides = {4 * 16, 16, 2};
    if (inplace) world.call.output = {wide.data() + 3, DType::f32, world.call.input.shape, world.call.input.strides};
    world.call.mask = MaskView{mask.data(), {3, 4}, {8, 2}};
    const KeptCall kept = world.backend.keep(world.problem, world.call);
    std::ranges::fill(wide, -1.0f);
    std::ranges::fill(mask, std::uint8_t{9});
    const auto* const copied = static_cast<const float*>(kept.call.input.data);
    for (std::int64_t i = 0; i < world.problem.elements(); ++i) {
      EXPECT_EQ(copied[i], static_cast<float>(3 + i / 8 * 16 + i % 8 * 2)) << i;
    }
    ASSERT_TRUE(kept.call.mask);
    for (std::int64_t i = 0; i < 12; ++i) {
      const std::int64_t from = i / 4 * 8 + i % 4 * 2;
      EXPECT_EQ(kept.call.mask->data[i / 4 * kept.call.mask->strides[0] + i % 4], from % 6 != 0) << i;
    }
    EXPECT_EQ(kept.call.output.data, inplace ? kept.call.input.data : nullptr);
  }
}

}  // namespace
}  // namespace gnomon
