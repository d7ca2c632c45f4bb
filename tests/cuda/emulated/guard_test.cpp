// What follows a plan of reduced precision, on the emulator: the fp32 pass is asked for once, with the caller's rows,
// when the flag is up; and of the two commits one happens.
#include "emulated/guard.cuh"

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

template <typename T>
void expect_reload(Layout layout, kernels::u32 flags, Rng& rng) {
  TestTensor host({3, 7, 20}, dtype_of<T>, layout);
  host.fill_normal(rng);
  const HostTensor tensor(host);
  const HostArray wide(DType::f32, 3 * 7 * 20);
  kernels::u32 answered = 4;
  condition_set = condition_value = 0;
  const kernels::ReloadRows p{.from = tensor.view().data,
                              .strides = strides_of(tensor.const_view()),
                              .rows = 21,
                              .width = 20,
                              .wide = wide.data<float>(),
                              .flags = &flags,
                              .condition = 77,
                              .answered = &answered};
  emulator::emulate(&kernels::reload_rows<T>, {.blocks = 2, .threads = kernels::kReloadThreads}, rng(), p);
  EXPECT_TRUE(wide.guards_intact());
  EXPECT_EQ(answered, flags ? 5u : 4u);
  EXPECT_EQ(condition_set, flags ? 77u : 0u);
  EXPECT_EQ(condition_value, flags ? 1u : 0u);
  if (flags) {
    EXPECT_EQ(wide.values(), host.values());
  } else {
    for (const double v : wide.values()) ASSERT_TRUE(std::isnan(v)) << "written while the flag was down";
  }
}

TEST(EmulatedGuard, RowsAreReadOnceMoreWhenTheFlagIsUp) {
  Rng rng(test_seed());
  for (const Layout layout : kOwnLayouts) {
    for (const kernels::u32 flags : {0u, 1u, 2u, 3u}) {
      expect_reload<float>(layout, flags, rng);
      expect_reload<f16>(layout, flags, rng);
    }
  }
}

TEST(EmulatedGuard, OneOfTheTwoCommitsHappens) {
  Rng rng(test_seed());
  for (const Layout layout : kOwnLayouts) {
    for (const kernels::u32 flags : {0u, 2u}) {
      for (const int when_raised : {0, 1}) {
        TestTensor before({3, 5, 24}, DType::f16, layout);
        before.fill(1);
        const HostTensor to(before);
        const auto values = normal_values(3 * 5 * 24, DType::f16, rng);
        const HostArray from(DType::f16, values);
        const kernels::CommitRows p{.from = from.data(),
                                    .to = to.view().data,
                                    .to_strides = strides_of(to.const_view()),
                                    .rows = 15,
                                    .width = 24,
                                    .when_raised = when_raised,
                                    .flags = &flags};
        emulator::emulate(&kernels::commit_rows<f16, 4>, {.blocks = 1, .threads = kernels::kCommitThreads}, rng(), p);
        bool rest_intact = false;
        const auto got = to.values(before, &rest_intact);
        EXPECT_TRUE(rest_intact);
        EXPECT_EQ(got, (flags != 0) == (when_raised != 0) ? values : before.values());
      }
    }
  }
}

}  // namespace
}  // namespace gnomon::test
