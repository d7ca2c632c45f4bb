// One line on stderr that rewrites itself; nothing at all when stderr is no terminal.
#pragma once

#include <functional>
#include <string>

#include "plan/planner.hpp"

namespace gnomon::cli {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const std::string& text);
  void clear();
  // For EngineOptions::progress; the line must outlive the engine.
  std::function<void(const Progress&)> planner(std::string label);

 private:
  bool terminal_;
  bool dirty_ = false;
  double shown_at_ = -1;  // on the steady clock
};

}  // namespace gnomon::cli
