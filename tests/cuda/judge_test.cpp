// The verdict on the device is that of core/contract.cpp, to the bit.
#include "cuda/judge.hpp"

#include <fmt/format.h>

#include "cuda/on_device.hpp"

namespace gnomon::test {
namespace {

class Judge : public OnDevice {
 protected:
  static void expect_same(const TestTensor& u, const TestTensor& r, const Contract& contract) {
    const DeviceTensor du(u), dr(r);
    const DeviceBytes scratch(sizeof(kernels::Comparison));
    const Verdict got = cuda::compare(library(), nullptr, du.const_view(), dr.const_view(), contract, scratch.data());
    const Verdict want = compare(u.const_view(), r.const_view(), contract);
    EXPECT_EQ(got.worst, want.worst);
    EXPECT_EQ(got.elements, want.elements);
    EXPECT_EQ(got.out_of_contract, want.out_of_contract);
    EXPECT_EQ(got.first_bad, want.first_bad);
    EXPECT_TRUE(near(got.bad_value, want.bad_value, 0));
    EXPECT_TRUE(near(got.bad_reference, want.bad_reference, 0));
  }
};

TEST_F(Judge, AgreesWithTheHost) {
  Rng rng(test_seed());
  const auto index = [&](std::int64_t n) { return static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(n)); };
  const Contract contracts[] = {{}, {.abs = 0, .rel = 0}, {.abs = 1e-5, .rel = 1e-5}};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    for (const DType reference : {DType::f32, DType::f64}) {
      for (const double noise : {0.0, 1e-5, 1e-3, 1e-1}) {
        for (const Layout layout : {Layout::contiguous, Layout::feature_major, Layout::column_slice}) {
          for (const Contract& contract : contracts) {
            SCOPED_TRACE(fmt::format("{} against {} noise {} {} abs {}", gnomon::name_of(dtype),
                                     gnomon::name_of(reference), noise, name_of(layout), contract.abs));
            TestTensor u({3, 37, 50}, dtype, layout), r({3, 37, 50}, reference);
            r.fill_normal(rng);
            const auto values = r.values();
            std::normal_distribution<double> normal(0, noise);
            for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); ++i) {
              set_value(u.view(), i / 1850, i / 50 % 37, i % 50, values[static_cast<std::size_t>(i)] + normal(rng));
            }
            if (rng() % 2) {
              for (const double special : {static_cast<double>(kNaN), static_cast<double>(kInf), -1e30, 0.0}) {
                set_value(rng() % 2 ? u.view() : r.view(), index(3), index(37), index(50), special);
              }
            }
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
