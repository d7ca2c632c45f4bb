// What follows a plan of reduced precision, on the emulator: the fp32 pass is asked for once, for the caller's tensors,
// when the flag is up; and results go out where they may.
#include "emulated/guard.cuh"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/emulated/on_emulator.hpp"

namespace {

unsigned long long condition_set = 0;
unsigned condition_value = 0;

}  // namespace

extern "C" void cudaGraphSetConditional(unsigned long long handle, unsigned int value) {
  condition_set = handle;
  condition_value = value;
}

namespace gnomon::test {
namespace {

using kernels::f16;

kernels::RowStrides strides_of(const ConstTensorView& view) {
  return {view.shape[1], view.strides[0], view.strides[1], view.strides[2]};
}

TEST(EmulatedGuard, TheFallbackIsAskedForOnceWhenTheFlagIsUp) {
  const float input = 0;
  const kernels::u8 mask = 1;
  float output = 0;
  for (const unsigned long long condition : {0ull, 77ull}) {
    for (const kernels::u32 raised : {0u, 1u, 2u, 3u}) {
      SCOPED_TRACE(fmt::format("condition {}, flag {}", condition, raised));
      kernels::u32 flags = raised, answered = 4;
      kernels::CallTensors told{};
      condition_set = 0;
      condition_value = 2;
      const kernels::Decide p{.call = {&input, &mask, &output},
                              .told = &told,
                              .flags = &flags,
                              .condition = condition,
                              .answered = &answered};
      emulator::emulate(&kernels::decide<kernels::kDecideThreads>, {.blocks = 1, .threads = kernels::kDecideThreads},
                        test_seed(), p);
      const bool answers = condition == 0 || raised;  // launched by itself, it was decided already
      EXPECT_EQ(answered, answers ? 5u : 4u);
      EXPECT_EQ(condition_set, condition);
      EXPECT_EQ(condition_value, condition == 0 ? 2u : answers) << "it has no default";
      EXPECT_EQ(told.input, answers ? &input : nullptr);
      EXPECT_EQ(told.mask, answers ? &mask : nullptr);
      EXPECT_EQ(told.output, answers ? &output : nullptr);
      EXPECT_EQ(flags, condition ? 0u : raised) << "the next call starts with it down";
    }
  }
}

template <typename T>
void expect_reload(Layout layout, Rng& rng) {
  TestTensor host({3, 7, 20}, dtype_of<T>, layout);
  host.fill_normal(rng);
  const HostTensor tensor(host);
  const HostArray wide(DType::f32, 3 * 7 * 20);
  const kernels::CallTensors call{.input = tensor.view().data};
  const kernels::ReloadRows p{
      .call = &call, .strides = strides_of(tensor.const_view()), .rows = 21, .width = 20, .wide = wide.data<float>()};
  emulator::emulate(&kernels::reload_rows<T>, {.blocks = 2, .threads = kernels::kReloadThreads}, rng(), p);
  EXPECT_TRUE(wide.guards_intact());
  EXPECT_EQ(wide.values(), host.values());
}

TEST(EmulatedGuard, RowsAreReadOnceMore) {
  Rng rng(test_seed());
  for (const Layout layout : kOwnLayouts) {
    expect_reload<float>(layout, rng);
    expect_reload<f16>(layout, rng);
  }
}

TEST(EmulatedGuard, ResultsGoOutWhileTheFlagIsDownOrWhereThereIsNone) {
  Rng rng(test_seed());
  for (const Layout layout : kOwnLayouts) {
    for (const kernels::u32 flags : {0u, 2u}) {
      for (const bool told : {false, true}) {
        TestTensor before({3, 5, 24}, DType::f16, layout);
        before.fill(1);
        const HostTensor to(before);
        const auto values = normal_values(3 * 5 * 24, DType::f16, rng);
        const HostArray from(DType::f16, values);
        const kernels::CallTensors call{.output = to.view().data};
        const kernels::CommitRows p{.from = from.data(),
                                    .to = told ? nullptr : to.view().data,
                                    .call = told ? &call : nullptr,
                                    .to_strides = strides_of(to.const_view()),
                                    .rows = 15,
                                    .width = 24,
                                    .flags = told ? nullptr : &flags};
        emulator::emulate(&kernels::commit_rows<f16, 4>, {.blocks = 1, .threads = kernels::kCommitThreads}, rng(), p);
        bool rest_intact = false;
        const auto got = to.values(before, &rest_intact);
        EXPECT_TRUE(rest_intact);
        EXPECT_EQ(got, told || flags == 0 ? values : before.values());
      }
    }
  }
}

}  // namespace
}  // namespace gnomon::test
