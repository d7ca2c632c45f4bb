// What a bench found, as a table for people, JSON for tools, CSV for spreadsheets.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench_rows.hpp"

namespace gnomon::cli {

struct BenchReport {
  double budget_seconds = 0, seconds = 0;
  bool cold = false;                                       // caches were emptied before each timed pass
  bool first_calls = false;                                // these alone were measured
  std::vector<std::pair<std::string, std::string>> notes;  // the caller's: commit, machine, ...
  std::vector<BenchRow> rows;
  std::vector<RowResult> results;  // one for each row
};

std::string bench_table(const BenchReport& report);
std::string bench_csv(const BenchReport& report);
nlohmann::ordered_json bench_json(const BenchReport& report);

}  // namespace gnomon::cli
