// The options of an engine as command-line options. Values go to EngineOptions::set as they are: its checks are the
// only ones.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.hpp"

namespace gnomon::cli {

class EngineFlags {
 public:
  explicit EngineFlags(CLI::App& command);
  EngineOptions options() const;                        // the engine's defaults, then what was given
  EngineOptions options(const Problem& problem) const;  // with the problem's device and contract
  bool given(std::string_view name) const;

 private:
  std::vector<std::pair<std::string, std::string>> given_;
};

// parse_problem with a suggestion for a misspelt word.
Problem parse_problem_argument(const std::string& text);
Problem parse_problem_argument(const std::vector<std::string>& words);  // one argument, or one for each word

// What a plan is stored under, for people: "`b64 s100 ...` under `threads=1`".
std::string stored_name(const Problem& problem, const Constraints& constraints);

}  // namespace gnomon::cli
