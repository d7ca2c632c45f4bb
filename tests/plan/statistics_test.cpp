#include "plan/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace gnomon {
namespace {

std::vector<double> ramp(int n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(Statistics, Quartiles) {
  const Quartiles q = quartiles({4, 1, 3, 2, 5});
  EXPECT_EQ(q.low, 2);
  EXPECT_EQ(q.median, 3);
  EXPECT_EQ(q.high, 4);
  EXPECT_EQ(quartiles({7}).low, 7);
  EXPECT_EQ(quartiles({1, 2}).median, 1.5);
  EXPECT_EQ(quartiles({}).median, 0);
}

// Against the printed tables of the sign test: ranks of the order statistics and exact coverage.
TEST(Statistics, IntervalsHaveTheCoverageOfTheSignTest) {
  struct Row {
    int n;
    double wanted, low, high, coverage;
  };
  for (const Row& row :
       {Row{1, 0.95, 1, 1, 0.0}, Row{2, 0.95, 1, 2, 0.5}, Row{5, 0.95, 1, 5, 0.9375}, Row{6, 0.95, 1, 6, 0.96875},
        Row{8, 0.95, 1, 8, 0.9921875}, Row{9, 0.95, 2, 8, 0.9609375}, Row{12, 0.95, 3, 10, 0.9614},
        Row{16, 0.99, 3, 14, 0.99582}, Row{20, 0.95, 6, 15, 0.9586}, Row{32, 0.99, 9, 24, 0.99300}}) {
    const Interval interval = median_interval(ramp(row.n), row.wanted);
    EXPECT_EQ(interval.low, row.low) << row.n;
    EXPECT_EQ(interval.high, row.high) << row.n;
    EXPECT_NEAR(interval.coverage, row.coverage, 5e-5) << row.n;
  }
}

TEST(Statistics, LooksHappenOnlyAtTheirNumbers) {
  for (int n = 1; n <= kMostPairs; ++n) {
    const std::vector<double> ratios(static_cast<std::size_t>(n), 0.5);
    const bool scheduled = std::ranges::find(kLooks, n) != std::end(kLooks);
    EXPECT_EQ(look(ratios, 19), scheduled ? Standing::faster : Standing::open) << n;
    EXPECT_EQ(look(ratios, 18), scheduled && n > 2 ? Standing::faster : Standing::open) << n;
    EXPECT_EQ(look(ratios, 0), scheduled && n > 4 ? Standing::faster : Standing::open) << n;
  }
}

TEST(Statistics, AnInterruptedComparisonNeedsThreePairsOrAClearDifference) {
  EXPECT_EQ(last_look({}), Standing::open);
  EXPECT_EQ(last_look(std::vector{0.4}), Standing::open);
  EXPECT_EQ(last_look(std::vector{0.3}), Standing::faster);
  EXPECT_EQ(last_look(std::vector{3.1}), Standing::slower);
  EXPECT_EQ(last_look(std::vector{0.02, 0.4}), Standing::open);
  EXPECT_EQ(last_look(std::vector{0.02, 50.0}), Standing::open);
  EXPECT_EQ(last_look(std::vector{0.02, 0.3}), Standing::faster);
  EXPECT_EQ(last_look(std::vector{0.5, 0.5}), Standing::open);
  EXPECT_EQ(last_look(std::vector{0.5, 0.6, 0.7}), Standing::faster);
  EXPECT_EQ(last_look(std::vector{1.5, 1.6, 1.7}), Standing::slower);
  EXPECT_EQ(last_look(std::vector{0.5, 0.6, 1.01}), Standing::open);
}

Standing compare_until_decided(std::mt19937_64& random, double true_ratio, double noise) {
  std::normal_distribution<double> normal(0, noise);
  std::vector<double> ratios;
  while (static_cast<int>(ratios.size()) < kMostPairs) {
    ratios.push_back(true_ratio * std::exp(normal(random) - normal(random)));
    if (const Standing standing = look(ratios, 4); standing != Standing::open) return standing;
  }
  return Standing::open;
}

TEST(Statistics, EqualsAreToldApartInAtMostOneComparisonOfTwenty) {
  const std::uint64_t seed = 7;
  std::mt19937_64 random(seed);
  int told_apart = 0;
  const int trials = 4000;
  for (int i = 0; i < trials; ++i) told_apart += compare_until_decided(random, 1, 0.05) != Standing::open;
  EXPECT_LT(told_apart, trials / 20) << "seed " << seed;
  EXPECT_GT(told_apart, 0) << "seed " << seed;  // else the looks are too strict to be of use
}

TEST(Statistics, ARealDifferenceIsFound) {
  const std::uint64_t seed = 8;
  std::mt19937_64 random(seed);
  int found = 0, wrong = 0;
  for (int i = 0; i < 500; ++i) {
    const Standing standing = compare_until_decided(random, 0.97, 0.02);
    found += standing == Standing::faster;
    wrong += standing == Standing::slower;
  }
  EXPECT_GT(found, 450) << "seed " << seed;  // 3 % at a noise of 2 %
  EXPECT_LT(wrong, 5) << "seed " << seed;
}

}  // namespace
}  // namespace gnomon
