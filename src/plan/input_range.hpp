// How large the rows of an input may be, in a backend's own measure, for a plan of reduced precision to be trusted.
#pragma once

#include <limits>

namespace gnomon {

struct InputRange {
  double low = 0, high = 0;
  bool operator==(const InputRange&) const = default;
};
inline constexpr InputRange kAnyInput{0, std::numeric_limits<double>::infinity()};

}  // namespace gnomon
