#include "core/grammar.hpp"

#include <charconv>

#include "core/error.hpp"

namespace gnomon::grammar {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::size_t kShown = 60;  // characters of a word that an error repeats

bool digit_like(char c) { return (c >= '0' && c <= '9') || c == '-' || c == '+'; }

template <typename T>
T number(std::string_view digits, std::string_view kind) {
  T value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range) throw_caller("the value is out of range for {}", kind);
  if (error != std::errc() || end != digits.data() + digits.size()) throw_caller("the value is not {}", kind);
  return value;
}

std::string forms(const std::vector<Rule>& rules) {
  std::string all;
  for (const Rule& rule : rules) {
    if (!all.empty() && !rule.form.empty()) all += ' ';
    all += rule.form;
  }
  return all;
}

std::string shown(std::string_view word) {
  std::string text;
  for (const char c : word.substr(0, kShown)) text += (c >= ' ' && c <= '~') ? c : '?';
  return word.size() > kShown ? text + "..." : text;
}

[[noreturn]] void refuse(std::string_view what, std::string_view word, std::size_t position, std::size_t column,
                         std::string_view why, const std::vector<Rule>& rules) {
  throw_caller("{}: word {} '{}' (column {}): {}; allowed: {}", what, position, shown(word), column, why, forms(rules));
}

std::size_t taker(std::string_view word, const std::vector<Rule>& rules) {
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (rules[i].take(word)) return i;
  }
  return rules.size();
}

}  // namespace

Rule integer(std::string_view letter, std::int64_t& target) {
  return {std::string(letter) + "<n>", [letter, &target](std::string_view word) {
            if (!word.starts_with(letter)) return false;
            const std::string_view digits = word.substr(letter.size());
            if (digits.empty() || !digit_like(digits.front())) return false;
            target = number<std::int64_t>(digits, "an integer");
            return true;
          }};
}

Rule real(std::string_view key, double& target) {
  return {std::string(key) + "=<x>", [key, &target](std::string_view word) {
            if (!word.starts_with(key) || word.size() == key.size() || word[key.size()] != '=') return false;
            target = number<double>(word.substr(key.size() + 1), "a number");
            return true;
          }};
}

Rule flag(std::string_view word, bool& target, bool value) { return choice<bool>({{word, value}}, target); }

void parse(std::string_view text, std::string_view what, const std::vector<Rule>& rules) {
  std::vector<bool> taken(rules.size(), false);
  std::size_t position = 0;
  for (std::size_t at = text.find_first_not_of(kBlanks); at != std::string_view::npos;
       at = text.find_first_not_of(kBlanks, at)) {
    const std::string_view word = text.substr(at, text.find_first_of(kBlanks, at) - at);
    ++position;
    std::size_t rule = rules.size();
    try {
      rule = taker(word, rules);
    } catch (const Error& error) {
      refuse(what, word, position, at + 1, error.what(), rules);
    }
    if (rule == rules.size()) refuse(what, word, position, at + 1, "unknown word", rules);
    if (taken[rule]) refuse(what, word, position, at + 1, fmt::format("a second {}", rules[rule].form), rules);
    taken[rule] = true;
    at += word.size();
  }
}

}  // namespace gnomon::grammar
