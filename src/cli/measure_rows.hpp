// One row measured: planned, checked, and timed in pairs with the reference path.
#pragma once

#include "cli/bench_rows.hpp"
#include "cli/progress.hpp"

namespace gnomon::cli {

struct RowBudget {
  double planning = 0, pairs = 0, bare = 0;  // seconds
};

// Bytes without which a row cannot be measured at all: its tensors, the reference answer, the weights as packed.
double least_bytes(const BenchRow& row);
// Seconds of the reference path by the backend's arithmetic, good to a factor of three.
double estimated_plain_seconds(const BenchRow& row, const Constraints& constraints);

RowResult measure_row(const BenchRow& row, EngineOptions options, const RowBudget& budget, ProgressLine& progress);

}  // namespace gnomon::cli
