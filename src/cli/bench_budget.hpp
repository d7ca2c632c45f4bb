// Which rows can be measured, and how the time is split over them.
#pragma once

#include <string>
#include <vector>

#include "cli/measure_rows.hpp"

namespace gnomon::cli {

// The least a row takes: planning's and our reference answers, and the fewest pairs.
double least_seconds(double plain_seconds);

class BenchBudget {
 public:
  BenchBudget(double total, std::vector<double> plain_seconds);

  // Cheap rows first, so that the time goes to as many rows as it can.
  const std::vector<std::size_t>& order() const { return order_; }
  // What the row at this place of the order gets of `left` seconds: its least, and an equal part of the spare time.
  // An empty reason: it may run.
  RowBudget share(std::size_t place, double left, std::string& reason) const;

 private:
  double total_;
  std::vector<double> plain_seconds_;
  std::vector<std::size_t> order_;
};

}  // namespace gnomon::cli
