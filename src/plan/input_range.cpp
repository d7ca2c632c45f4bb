#include "plan/input_range.hpp"

#include <algorithm>
#include <cmath>

namespace gnomon {

InputRange trusted_range(NormPlacement norm, std::vector<float> sizes) {
  std::erase_if(sizes, [](float size) { return !std::isfinite(size) || size < 0; });
  if (sizes.empty()) return {};
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::nth_element(sizes.begin(), middle, sizes.end());
  const float high = std::min(1.1f * *std::max_element(middle, sizes.end()), 1.5f * *middle);
  if (norm == NormPlacement::post) return {0, high};
  return {std::max(*std::min_element(sizes.begin(), middle + 1) / 1.1f, *middle / 1.5f), high};
}

}  // namespace gnomon
