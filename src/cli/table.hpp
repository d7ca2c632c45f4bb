// A plain-text table: columns as wide as their widest cell, numbers to the right.
#pragma once

#include <string>
#include <vector>

namespace gnomon::cli {

struct Column {
  std::string title;
  bool right = true;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string text() const;  // a row may be shorter than the columns: its last cell then runs on

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Quoted where CSV (RFC 4180) needs it.
std::string csv_line(const std::vector<std::string>& cells);

}  // namespace gnomon::cli
