// The verdict on the device is that of core/contract.cpp, to the bit.
#include "cuda/judge.hpp"

#include <fmt/format.h>

#include "cuda/judge_cases.hpp"
#include "cuda/on_device.hpp"

namespace gnomon::test {
namespace {

class Judge : public OnDevice {
 protected:
  static void expect_same(const TestTensor& u, const TestTensor& r, const Contract& contract) {
    const DeviceTensor du(u), dr(r);
    const DeviceBytes scratch(sizeof(kernels::Comparison));
    expect_same_verdict(cuda::compare(library(), nullptr, du.const_view(), dr.const_view(), contract, scratch.data()),
                        compare(u.const_view(), r.const_view(), contract));
  }
};

TEST_F(Judge, AgreesWithTheHost) {
  Rng rng(test_seed());
  const Contract contracts[] = {{}, {.abs = 0, .rel = 0}, {.abs = 1e-5, .rel = 1e-5}};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    for (const DType reference : {DType::f32, DType::f64}) {
      for (const double noise : {0.0, 1e-5, 1e-3, 1e-1}) {
        for (const Layout layout : {Layout::contiguous, Layout::feature_major, Layout::column_slice}) {
          for (const Contract& contract : contracts) {
            SCOPED_TRACE(fmt::format("{} against {} noise {} {} abs {}", gnomon::name_of(dtype),
                                     gnomon::name_of(reference), noise, name_of(layout), contract.abs));
            TestTensor u({3, 37, 50}, dtype, layout), r({3, 37, 50}, reference);
            fill_judged(u, r, noise, rng);
            expect_same(u, r, contract);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(Judge, SmallAndGreatReferencesOfStoredTypes) {
  Rng rng(test_seed());
  for (const DType dtype : {DType::f16, DType::bf16}) {
    TestTensor u({1, 1, 5000}, dtype), r({1, 1, 5000});
    std::uniform_real_distribution<double> mantissa(-1, 1);
    for (std::int64_t i = 0; i < 5000; ++i) {
      const double value = std::ldexp(mantissa(rng), static_cast<int>(rng() % 40) - 28);
      set_value(r.view(), 0, 0, i, value);
      set_value(u.view(), 0, 0, i, value);
    }
    expect_same(u, r, {.abs = 0, .rel = 0});
    set_value(u.view(), 0, 0, 4321, 7);
    expect_same(u, r, {.abs = 0, .rel = 0});
  }
}

TEST_F(Judge, ChangedWordsAreCounted) {
  constexpr std::int64_t n = 100'003;
  const DeviceBytes words(n * 4), scratch(8);
  cuda::fill_pattern(nullptr, words.data(), n, 0x7fc5a5a5u);
  EXPECT_EQ(cuda::changed_words(library(), nullptr, words.data(), n, 0x7fc5a5a5u, scratch.data()), 0);
  for (const std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
    cuda::fill_pattern(nullptr, words.data<std::uint32_t>() + at, 1, 0);
  }
  EXPECT_EQ(cuda::changed_words(library(), nullptr, words.data(), n, 0x7fc5a5a5u, scratch.data()), 3);
  EXPECT_TRUE(words.guards_intact());
}

}  // namespace
}  // namespace gnomon::test
