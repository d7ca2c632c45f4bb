// Long lists in error messages: the first few, and how many more.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace gnomon {

inline std::string some_of(std::span<const std::string> items) {
  constexpr std::size_t kShown = 5;
  const std::string shown = fmt::format("{}", fmt::join(items.first(std::min(items.size(), kShown)), ", "));
  return items.size() > kShown ? fmt::format("{} and {} more", shown, items.size() - kShown) : shown;
}

inline std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace gnomon
