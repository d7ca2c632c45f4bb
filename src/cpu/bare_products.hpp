// What oneDNN's products alone reach on this machine: the yardstick for a whole pass.
#pragma once

#include "core/problem.hpp"

namespace gnomon::cpu {

// FLOP/s of the six projections of `problem` (whole M, packed weights, bias; no activation, no attention) on `threads`
// threads, each taking an equal share of the rows: the median of repeated rounds within the time. 0 when the whole M
// does not fit in memory.
double measure_bare_products(const Problem& problem, int threads, double budget_seconds);

// FLOP/s of a product whose operands stay in cache, on `threads` threads: the practical peak. Measured once per
// process.
double product_peak(int threads);

}  // namespace gnomon::cpu
