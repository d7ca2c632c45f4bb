// The verdict of the judge's kernels on the emulator is that of core/contract.cpp, to the bit.
#include "emulated/judge.cuh"

#include <fmt/format.h>

#include "cuda/emulated/on_emulator.hpp"
#include "cuda/judge_cases.hpp"

namespace gnomon::test {
namespace {

kernels::RowStrides strides_of(const ConstTensorView& view) {
  return {view.shape[1], view.strides[0], view.strides[1], view.strides[2]};
}

template <typename U, typename R>
Verdict judge(const TestTensor& u, const TestTensor& r, const Contract& contract, Rng& rng) {
  kernels::Comparison result{.first_bad = ~kernels::u64{0}};
  const kernels::Compare p{.u = u.const_view().data,
                           .r = r.const_view().data,
                           .u_strides = strides_of(u.const_view()),
                           .r_strides = strides_of(r.const_view()),
                           .rows = u.view().shape[0] * u.view().shape[1],
                           .width = u.view().shape[2],
                           .abs = contract.abs,
                           .rel = contract.rel,
                           .result = &result};
  emulator::emulate(&kernels::compare<U, R>, {.blocks = 3, .threads = kernels::kJudgeThreads}, rng(), p);
  emulator::emulate(&kernels::fetch_first_bad<U, R>, {.blocks = 1, .threads = 1}, rng(), p);
  Verdict verdict;
  verdict.elements = u.const_view().elements();
  verdict.worst = std::bit_cast<double>(result.worst);
  verdict.out_of_contract = static_cast<std::int64_t>(result.out_of_contract);
  verdict.first_bad = static_cast<std::int64_t>(result.first_bad);
  if (verdict.first_bad >= 0) verdict.bad_value = result.bad_value, verdict.bad_reference = result.bad_reference;
  return verdict;
}

template <typename U, typename R>
void expect_same(Rng& rng) {
  for (const double noise : {0.0, 1e-5, 1e-3, 1e-1}) {
    for (const Layout layout : {Layout::contiguous, Layout::feature_major, Layout::column_slice}) {
      for (const Contract& contract : {Contract{}, Contract{.abs = 0, .rel = 0}, Contract{.abs = 1e-5, .rel = 1e-5}}) {
        SCOPED_TRACE(fmt::format("{} against {} noise {} {} abs {}", gnomon::name_of(dtype_of<U>),
                                 gnomon::name_of(dtype_of<R>), noise, name_of(layout), contract.abs));
        TestTensor u({2, 11, 50}, dtype_of<U>, layout), r({2, 11, 50}, dtype_of<R>);
        fill_judged(u, r, noise, rng);
        expect_same_verdict(judge<U, R>(u, r, contract, rng), compare(u.const_view(), r.const_view(), contract));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(EmulatedJudge, AgreesWithTheHost) {
  Rng rng(test_seed());
  expect_same<float, float>(rng);
  expect_same<kernels::f16, double>(rng);
  expect_same<kernels::bf16, float>(rng);
}

TEST(EmulatedJudge, ChangedWordsAreCounted) {
  Rng rng(test_seed());
  std::vector<kernels::u32> words(3001, 0x7fc5a5a5u);
  words[0] = words[1500] = words[3000] = 0;
  kernels::u64 changed = 0;
  const kernels::CheckPattern p{words.data(), 3001, 0x7fc5a5a5u, &changed};
  emulator::emulate(&kernels::check_pattern<256>, {.blocks = 4, .threads = 256}, rng(), p);
  EXPECT_EQ(changed, 3u);
}

}  // namespace
}  // namespace gnomon::test
