// What oneDNN's products alone reach on this machine: the yardstick for a whole pass.
#pragma once

#include "core/problem.hpp"
#include "plan/statistics.hpp"

namespace gnomon::cpu {

// FLOP/s of the six projections of `problem` (whole M, packed weights, bias; no activation, no attention) on `threads`
// threads, each taking an equal share of the rows: quartiles of repeated rounds within the time. All 0 when the whole M
// does not fit in memory.
Quartiles measure_bare_products(const Problem& problem, int threads, double budget_seconds);

// FLOP/s of a product whose operands stay in cache, on `threads` threads: the practical peak. Measured once per
// process.
double product_peak(int threads);

}  // namespace gnomon::cpu
