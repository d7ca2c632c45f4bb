#include "cuda/architecture.hpp"

#include <charconv>

#include "core/error.hpp"

namespace gnomon::cuda {

Architecture Architecture::parse(std::string_view name) {
  Architecture a;
  std::string_view number = name;
  if (number.starts_with("sm_")) {
    number.remove_prefix(3);
  } else if (number.starts_with("compute_")) {
    number.remove_prefix(8);
    a.portable = true;
  } else {
    throw_caller("architecture: expected sm_80, sm_90a, compute_80 or the like, got '{}'", name);
  }
  if (number.ends_with('a')) {
    number.remove_suffix(1);
    a.accelerated = true;
  }
  int value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size() || value < 80 || value > 999) {
    throw_caller("architecture: expected a compute capability from 8.0 as in sm_80, got '{}'", name);
  }
  a.major = value / 10;
  a.minor = value % 10;
  return a;
}

std::string Architecture::name() const {
  return fmt::format("{}_{}{}{}", portable ? "compute" : "sm", major, minor, accelerated ? "a" : "");
}

}  // namespace gnomon::cuda
