#include "plan/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gnomon {
namespace {

double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// |t| of the mean logarithm against 0; infinite when all ratios are equal and not 1.
double student_t(std::span<const double> ratios) {
  const auto n = static_cast<double>(ratios.size());
  double sum = 0, squares = 0;
  for (const double ratio : ratios) sum += std::log(ratio);
  const double mean = sum / n;
  for (const double ratio : ratios) squares += (std::log(ratio) - mean) * (std::log(ratio) - mean);
  const double error = std::sqrt(squares / (n - 1) / n);
  if (mean == 0) return 0;
  return error == 0 ? INFINITY : std::abs(mean) / error;
}

Standing stand(const Interval& interval) {
  if (interval.high < 1) return Standing::faster;
  if (interval.low > 1) return Standing::slower;
  return Standing::open;
}

}  // namespace

Quartiles quartiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {quantile(values, 0.25), quantile(values, 0.5), quantile(values, 0.75)};
}

Interval median_interval(std::span<const double> ratios, double wanted) {
  if (ratios.empty()) return {};
  std::vector<double> sorted(ratios.begin(), ratios.end());
  std::ranges::sort(sorted);
  const std::size_t n = sorted.size();
  // The true median lies outside [x(k+1), x(n-k)] (k from 0) when at most k of n fair coins fall on one side.
  double term = std::pow(0.5, static_cast<double>(n)), tail = term;
  std::size_t k = 0;
  double coverage = 1 - 2 * tail;
  while (2 * (k + 1) < n) {
    term *= static_cast<double>(n - k) / static_cast<double>(k + 1);
    tail += term;
    if (1 - 2 * tail < wanted) break;
    coverage = 1 - 2 * tail;
    ++k;
  }
  return {quantile(sorted, 0.5), sorted[k], sorted[n - 1 - k], std::max(coverage, 0.0)};
}

Standing look(std::span<const double> ratios, int apart_from) {
  const auto pairs = static_cast<int>(ratios.size());
  if (std::ranges::find(kLooks, pairs) == std::end(kLooks)) return Standing::open;
  // Among equals, two samples lie both above or both below m others with probability 4 / ((m + 1)(m + 2)).
  if (pairs == 2 && apart_from < 19) return Standing::open;
  // 5.841: the two-sided 1 % point of Student's t with 3 degrees of freedom.
  if (pairs == 4 && (apart_from == 0 || student_t(ratios) <= 5.841)) return Standing::open;
  return stand(median_interval(ratios, kLookCoverage));
}

Standing last_look(std::span<const double> ratios) {
  if (static_cast<int>(ratios.size()) >= kFewestPairs) return stand(median_interval(ratios, 0.95));
  if (ratios.empty()) return Standing::open;
  const auto [low, high] = std::ranges::minmax(ratios);
  if (high * kClearRatio < 1) return Standing::faster;
  if (low > kClearRatio) return Standing::slower;
  return Standing::open;
}

}  // namespace gnomon
