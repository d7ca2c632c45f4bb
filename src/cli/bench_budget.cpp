#include "cli/bench_budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace gnomon::cli {
namespace {

// In passes of the reference path: two reference answers, three pairs, their warm-up, the checks.
constexpr double least_passes = 8;
constexpr double least_fixed = 0.5;
constexpr double planning_part = 0.6, pairs_part = 0.3, bare_part = 0.1;
constexpr double longest_pairs = 20, longest_bare = 3;

}  // namespace

double least_seconds(double plain_seconds) { return least_passes * plain_seconds + least_fixed; }

BenchBudget::BenchBudget(double total, std::vector<double> plain_seconds)
    : total_(total), plain_seconds_(std::move(plain_seconds)), order_(plain_seconds_.size()) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::stable_sort(order_.begin(), order_.end(),
                   [&](std::size_t a, std::size_t b) { return plain_seconds_[a] < plain_seconds_[b]; });
}

RowBudget BenchBudget::share(std::size_t place, double left, std::string& reason) const {
  const double least = least_seconds(plain_seconds_[order_[place]]);
  if (least > left) {
    reason = fmt::format("time: needs about {:.0f} s, {:.0f} s of the budget of {:.0f} s are left", least,
                         std::max(left, 0.0), total_);
    return {};
  }
  double spare = left;
  std::size_t rows = 0;
  for (std::size_t i = place; i < order_.size(); ++i) {
    const double needs = least_seconds(plain_seconds_[order_[i]]);
    if (needs > spare) break;  // it and all dearer ones will be left out
    spare -= needs;
    ++rows;
  }
  const double share = least + spare / static_cast<double>(rows);
  return {planning_part * share, std::min(pairs_part * share, longest_pairs),
          std::min(bare_part * share, longest_bare)};
}

}  // namespace gnomon::cli
