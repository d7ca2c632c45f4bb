#include "cpu/bare_products.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "cpu/vector_test.hpp"

namespace gnomon::test {
namespace {

class BareProductsTest : public VectorTest {};

// Not a timed test: a rate is a positive number between any machine's, and the budget is a budget.
TEST_F(BareProductsTest, GiveAPlausibleRateWithinTheBudget) {
  for (const char* text : {"b1 s7 d32 h2 l2 f48", "b3 s5 d24 h2 l1 f13 nobias", "b1 s1 d8 h1 l1 f8"}) {
    for (const int threads : {1, 2, 3}) {
      const auto start = std::chrono::steady_clock::now();
      const Quartiles rates = cpu::measure_bare_products(parse_problem(text), threads, 0.01);
      EXPECT_TRUE(rates.low > 1e3 && rates.low <= rates.median && rates.median <= rates.high && rates.high < 1e15)
          << text << " on " << threads << ": " << rates.median;
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << text;
    }
  }
}

TEST_F(BareProductsTest, ThePeakIsMeasuredOnce) {
  const double peak = cpu::product_peak(1);
  EXPECT_GT(peak, 1e6);
  EXPECT_EQ(cpu::product_peak(1), peak);
}

}  // namespace
}  // namespace gnomon::test
