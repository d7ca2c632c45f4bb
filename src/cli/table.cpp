#include "cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gnomon::cli {
namespace {

std::string aligned(const std::string& cell, std::size_t width, bool right) {
  return right ? fmt::format("{:>{}}", cell, width) : fmt::format("{:<{}}", cell, width);
}

void finish_line(std::string& text) {
  text.erase(text.find_last_not_of(' ') + 1);
  text += '\n';
}

}  // namespace

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(column.title.size());
  for (const auto& row : rows_) {
    const bool runs_on = row.size() < columns_.size();
    for (std::size_t i = 0; i < row.size() - (runs_on ? 1 : 0); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    text += (i > 0 ? "  " : "") + aligned(columns_[i].title, widths[i], columns_[i].right);
  }
  finish_line(text);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool last_runs_on = i + 1 == row.size() && row.size() < columns_.size();
      text += (i > 0 ? "  " : "") + (last_runs_on ? row[i] : aligned(row[i], widths[i], columns_[i].right));
    }
    finish_line(text);
  }
  return text;
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) {
    if (&cell != &cells.front()) line += ',';
    if (cell.find_first_of(",\"\n") == std::string::npos) {
      line += cell;
      continue;
    }
    line += '"';
    for (const char c : cell) line += c == '"' ? std::string("\"\"") : std::string(1, c);
    line += '"';
  }
  return line + "\n";
}

}  // namespace gnomon::cli
