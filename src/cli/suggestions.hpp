// "Did you mean ...?"
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace gnomon::cli {

// "; did you mean `--quick`?", or nothing when no known word is near.
std::string suggestion(std::string_view word, const std::vector<std::string>& known);

// What was wrong with the command line, in one line, with the nearest option or command.
std::string explain_parse_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv);

}  // namespace gnomon::cli
