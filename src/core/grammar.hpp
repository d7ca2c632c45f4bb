// The one-line grammar: words separated by blanks, each taken by exactly one rule, at most one word a rule.
// StackConfig and Problem are both read with it; a new word is a new rule.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/stack_config.hpp"

namespace gnomon::grammar {

struct Rule {
  std::string form;  // what a person may write: "d<n>", "causal|bi"; empty: nothing, the rule is there to refuse
  // False: the word is not this rule's. A word that is the rule's but has a bad value throws a caller error
  // whose text says what is wrong with it; parse() adds the word and its position.
  std::function<bool(std::string_view word)> take;
};

Rule integer(std::string_view letter, std::int64_t& target);
Rule real(std::string_view key, double& target);  // key=<x>
Rule flag(std::string_view word, bool& target, bool value);

template <typename T>
Rule choice(std::initializer_list<std::pair<std::string_view, T>> words, T& target) {
  std::string form;
  for (const auto& [word, value] : words) {
    if (!form.empty()) form += '|';
    form += word;
  }
  return {form, [choices = std::vector(words), &target](std::string_view word) {
            for (const auto& [name, value] : choices) {
              if (name == word) return target = value, true;
            }
            return false;
          }};
}

// Applies every word of `text` to the rules. `what` names the thing being read in errors.
void parse(std::string_view text, std::string_view what, const std::vector<Rule>& rules);

std::vector<Rule> stack_config_rules(StackConfig& config);

}  // namespace gnomon::grammar
