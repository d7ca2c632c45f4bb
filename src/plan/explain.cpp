// The table that `gnomon explain` prints.
#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/memory.hpp"
#include "plan/plan_record.hpp"

namespace gnomon {
namespace {

using Row = std::vector<std::string>;

std::string duration(double seconds) {
  if (seconds <= 0) return "-";
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string limit_share(double worst) {
  if (worst < 0) return "-";
  return std::isfinite(worst) ? fmt::format("{:.3f}", worst) : "inf";
}

std::string range_text(const InputRange& range) {
  return range.low > 0 ? fmt::format("{:g} to {:g}", range.low, range.high) : fmt::format("up to {:g}", range.high);
}

std::string joined(const std::vector<std::string>& words) {
  return words.empty() ? "" : fmt::format("{}", fmt::join(words, ", "));
}

// What differs from the winner is what a reader wants to see of a candidate with twenty choices.
std::string difference(const Candidate& candidate, const Candidate& winner) {
  std::string text;
  for (const Choice& choice : candidate.choices()) {
    const std::string* wins = winner.find(choice.name);
    if (!wins || *wins != choice.value) text += (text.empty() ? "" : " ") + choice.name + "=" + choice.value;
  }
  return text.empty() ? "(the winner)" : text;
}

Row row_of(const CandidateReport& report, const Candidate& winner) {
  const bool timed = report.seconds > 0, paired = report.ratio > 0;
  std::string reason = report.reason;
  if (!report.approximations.empty()) {
    reason = fmt::format("approximate: {}{}{}", joined(report.approximations), reason.empty() ? "" : "; ", reason);
  }
  return {report.group,
          difference(report.candidate, winner),
          duration(report.seconds),
          timed ? fmt::format("{}..{}", duration(report.seconds_low), duration(report.seconds_high)) : "-",
          paired ? fmt::format("{:.3f} [{:.3f}, {:.3f}]", report.ratio, report.ratio_low, report.ratio_high) : "-",
          limit_share(report.worst),
          std::string(name_of(report.outcome)),
          reason};
}

std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format(" {:<{}}", row[i], widths[i] + 1);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string cut_short(const PlanRecord& record) {
  if (!record.budget_exhausted) return "";
  const std::string_view seen = ", cut short: see what is untimed";
  // The caller's own cut has a note, and any planning goes on from there (PlanRecord::satisfies).
  if (record.budget_seconds <= 0) return std::string(seen);
  return fmt::format("{}; a budget of {:.3g} s or more plans anew", seen, 2 * record.budget_seconds);
}

}  // namespace

std::string explain_text(const PlanRecord& record) {
  std::string text = to_string(record.problem) + "\n";
  const auto line = [&text](std::string_view name, const std::string& value) {
    if (!value.empty()) text += fmt::format("  {:<11}{}\n", name, value);
  };
  line("winner", record.winner.to_string());
  line("demands", record.constraints);
  line("time", record.seconds > 0 ? duration(record.seconds) + " a pass" : "not timed");
  if (record.plain_seconds > 0 && record.seconds > 0) {
    line("baseline", fmt::format("plain path {}, the winner is {:.2f} times faster", duration(record.plain_seconds),
                                 record.plain_seconds / record.seconds));
  } else {
    line("baseline", "plain path not timed");
  }
  line("bound", record.bound);
  line("error", fmt::format("worst element at {} of the contract's limit, verified for rows of size {}",
                            limit_share(record.worst), range_text(record.verified_range)));
  line("timed on", record.calibrated_on);
  line("memory", format_bytes(static_cast<double>(record.scratch_bytes)) + " beyond input, output and weights");
  line("planning", fmt::format("{}, {} runs, {} s{}", name_of(record.effort), record.timing_runs,
                               fmt::format("{:.2f}", record.planning_seconds), cut_short(record)));
  for (const std::string& note : record.notes) line("note", note);

  std::vector<Row> rows{{"group", "candidate (what differs from the winner)", "time", "quartiles",
                         "time / incumbent's [interval]", "error", "verdict", "reason"}};
  for (const CandidateReport& report : record.candidates) rows.push_back(row_of(report, record.winner));
  return text + "\n" + table(rows);
}

}  // namespace gnomon
