// How large the rows of an input may be, in a backend's own measure, for a plan of reduced precision to be trusted.
#pragma once

#include <limits>
#include <vector>

#include "core/stack_config.hpp"

namespace gnomon {

struct InputRange {
  double low = 0, high = 0;
  bool operator==(const InputRange&) const = default;
};
inline constexpr InputRange kAnyInput{0, std::numeric_limits<double>::infinity()};

// The range that one input earns, from the root mean squares of its valid rows (negative or not finite: no such row).
// The error of a product grows with the norm of its row; the largest |x| says little of that, and one outlier would
// stretch it for all that follows. So the range is that of the largest row and a tenth more, which the headroom holds
// (the error grows in proportion, and the next input of the same kind has a slightly larger row half of the time); but
// at most 1.5 times the median row's: what few rows showed is not trusted for many.
// A pre-norm stack needs the mirrored lower end: its sublayers see normalised rows and err alike however small the
// input, and add that to a residual stream, and an answer, that is smaller. Post-norm errs less on less.
InputRange trusted_range(NormPlacement norm, std::vector<float> row_sizes);

}  // namespace gnomon
