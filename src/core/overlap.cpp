#include "core/overlap.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace gnomon {
namespace {

__extension__ using Wide = __int128;

// A bounded linear equation: is there x_k in [low_k, high_k] with sum(factor_k * x_k) = target?
struct Term {
  std::int64_t factor = 0;
  Wide low = 0, high = 0;
};

Wide floor_div(Wide a, Wide b) {  // b > 0
  return a / b - (a % b < 0 ? 1 : 0);
}

// Depth first, largest factor first. What the smaller terms can still reach bounds x_k to a narrow interval; with
// nested strides that is one or two values, so the search is a handful of steps. Layouts that exceed the budget (none
// but artificial ones do) count as overlapping: refusing them is safe.
class Equation {
 public:
  explicit Equation(std::vector<Term> terms) : terms_(std::move(terms)) {
    for (Term& term : terms_) {
      if (term.factor >= 0) continue;
      term = {-term.factor, -term.high, -term.low};
    }
    std::erase_if(terms_, [](const Term& term) { return term.factor == 0; });
    std::sort(terms_.begin(), terms_.end(), [](const Term& a, const Term& b) { return a.factor > b.factor; });
    merge_equal_factors();
    reach_.resize(terms_.size() + 1);
    common_.resize(terms_.size() + 1, 0);
    for (std::size_t k = terms_.size(); k-- > 0;) {
      reach_[k] = {reach_[k + 1].first + terms_[k].factor * terms_[k].low,
                   reach_[k + 1].second + terms_[k].factor * terms_[k].high};
      common_[k] = std::gcd(common_[k + 1], terms_[k].factor);
    }
  }

  bool solvable(Wide target) { return search(0, target); }

 private:
  void merge_equal_factors() {
    std::vector<Term> merged;
    for (const Term& term : terms_) {
      if (!merged.empty() && merged.back().factor == term.factor) {
        merged.back().low += term.low;
        merged.back().high += term.high;
      } else {
        merged.push_back(term);
      }
    }
    terms_ = std::move(merged);
  }

  bool search(std::size_t k, Wide target) {
    if (--budget_ < 0) return true;
    if (target < reach_[k].first || target > reach_[k].second) return false;
    if (k == terms_.size()) return target == 0;
    if (target % common_[k] != 0) return false;
    const Term& term = terms_[k];
    const Wide low = std::max(term.low, -floor_div(reach_[k + 1].second - target, term.factor));
    const Wide high = std::min(term.high, floor_div(target - reach_[k + 1].first, term.factor));
    for (Wide x = low; x <= high; ++x) {
      if (search(k + 1, target - term.factor * x)) return true;
    }
    return false;
  }

  std::vector<Term> terms_;
  std::vector<std::pair<Wide, Wide>> reach_;  // least and greatest sum of terms k, k+1, ...
  std::vector<std::int64_t> common_;          // their greatest common divisor
  int budget_ = 100'000;
};

bool empty(const StridedBytes& box) { return std::find(box.shape.begin(), box.shape.end(), 0) != box.shape.end(); }

std::int64_t distance(const StridedBytes& from, const StridedBytes& to) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to.data) -
                                   reinterpret_cast<std::uintptr_t>(from.data));
}

// Strides that nest (each at least as long as all that lies below it) cannot meet themselves: the everyday case, and
// the one that costs nothing at every call.
bool nested(const StridedBytes& box) {
  std::array<std::pair<std::int64_t, std::int64_t>, 3> dims;
  for (std::size_t k = 0; k < dims.size(); ++k) dims[k] = {std::abs(box.strides[k]), box.shape[k]};
  if (dims[0] > dims[1]) std::swap(dims[0], dims[1]);
  if (dims[1] > dims[2]) std::swap(dims[1], dims[2]);
  if (dims[0] > dims[1]) std::swap(dims[0], dims[1]);
  Wide below = box.element;
  for (const auto& [stride, size] : dims) {
    if (size == 1) continue;
    if (stride < below) return false;
    below += Wide{stride} * (size - 1);
  }
  return true;
}

}  // namespace

ByteRange range_of(const StridedBytes& box) {
  if (empty(box)) return {};
  Wide first = 0, past = box.element;
  for (std::size_t k = 0; k < box.shape.size(); ++k) {
    const Wide span = Wide{box.strides[k]} * (box.shape[k] - 1);
    (span < 0 ? first : past) += span;
  }
  constexpr Wide limit = Wide{1} << 62;
  if (first < -limit || past > limit) throw_caller("a tensor's shape and strides reach beyond what can be addressed");
  return {static_cast<std::int64_t>(first), static_cast<std::int64_t>(past)};
}

bool overlaps(const StridedBytes& a, const StridedBytes& b) {
  if (empty(a) || empty(b)) return false;
  const ByteRange range_a = range_of(a), range_b = range_of(b);
  const Wide to_b = distance(a, b);
  if (range_a.past <= to_b + range_b.first || to_b + range_b.past <= range_a.first) return false;
  std::vector<Term> terms = {{1, 0, a.element - 1}, {-1, 0, b.element - 1}};
  for (std::size_t k = 0; k < a.shape.size(); ++k) terms.push_back({a.strides[k], 0, a.shape[k] - 1});
  for (std::size_t k = 0; k < b.shape.size(); ++k) terms.push_back({b.strides[k], -(b.shape[k] - 1), 0});
  return Equation(std::move(terms)).solvable(to_b);
}

bool overlaps_itself(const StridedBytes& box) {
  if (empty(box) || nested(box)) return false;
  for (std::size_t k = 0; k < box.shape.size(); ++k) {
    // Indices that differ first in dimension k: their difference there is at least 1, free in the later dimensions.
    std::vector<Term> terms = {{1, -(box.element - 1), box.element - 1}};
    if (box.shape[k] == 1) continue;
    terms.push_back({box.strides[k], 0, box.shape[k] - 2});
    for (std::size_t later = k + 1; later < box.shape.size(); ++later) {
      terms.push_back({box.strides[later], -(box.shape[later] - 1), box.shape[later] - 1});
    }
    if (Equation(std::move(terms)).solvable(-Wide{box.strides[k]})) return true;
  }
  return false;
}

}  // namespace gnomon
