#include "cli/suggestions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace gnomon::cli {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return *command;
}

std::vector<std::string> known_words(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    words.push_back(sub->get_name());
  }
  return words;
}

// CLI11 does not say which word was too many in a form of its own: the message ends in the words.
std::string first_extra(const std::string& message) {
  const std::size_t colon = message.rfind(": ");
  if (colon == std::string::npos) return "";
  return message.substr(colon + 2, message.find(' ', colon + 2) - colon - 2);
}

}  // namespace

std::string suggestion(std::string_view word, const std::vector<std::string>& known) {
  const std::string name(word.substr(0, word.find('=')));
  std::size_t best = std::max<std::size_t>(2, name.size() / 3) + 1;
  std::string nearest;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best && distance < candidate.size()) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest.empty() ? "" : fmt::format("; did you mean `{}`?", nearest);
}

std::string explain_parse_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const CLI::App& command = innermost(app);
  const std::string path = &command == &app ? "gnomon" : "gnomon " + command.get_name();
  const std::string help = fmt::format(" (see `{} --help`)", path);
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError)) return error.what() + help;

  std::string extra = first_extra(error.what());
  if (extra.empty() && argc > 1) extra = argv[1];
  const bool is_option = extra.starts_with("-");
  return fmt::format("unknown {} `{}`{}{}", is_option ? "option" : "word", extra,
                     suggestion(extra, known_words(command)), help);
}

}  // namespace gnomon::cli
