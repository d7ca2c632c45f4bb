#include "plan/candidate.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace gnomon {

const std::string* Candidate::find(std::string_view name) const {
  const auto found = std::ranges::find(choices_, name, &Choice::name);
  return found == choices_.end() ? nullptr : &found->value;
}

const std::string& Candidate::get(std::string_view name) const {
  if (const std::string* value = find(name)) return *value;
  throw_internal("candidate has no choice '{}'; it has: {}", name, to_string());
}

bool Candidate::on(std::string_view name) const { return get(name) == "on"; }

Candidate Candidate::with(std::span<const Choice> changes) const {
  Candidate changed = *this;
  for (const Choice& change : changes) {
    const auto found = std::ranges::find(changed.choices_, change.name, &Choice::name);
    if (found == changed.choices_.end()) {
      changed.choices_.push_back(change);
    } else {
      found->value = change.value;
    }
  }
  return changed;
}

std::string Candidate::to_string() const {
  std::string text;
  for (const Choice& choice : choices_) text += (text.empty() ? "" : " ") + choice.name + "=" + choice.value;
  return text;
}

Candidate Candidate::parse(std::string_view text) {
  std::vector<Choice> choices;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == word.size()) {
      throw_caller("candidate: expected name=value, got '{}' in '{}'", word, text);
    }
    Choice choice{std::string(word.substr(0, equals)), std::string(word.substr(equals + 1))};
    if (std::ranges::find(choices, choice.name, &Choice::name) != choices.end()) {
      throw_caller("candidate: '{}' is chosen twice in '{}'", choice.name, text);
    }
    choices.push_back(std::move(choice));
  }
  return Candidate(std::move(choices));
}

std::string Constraints::to_string() const {
  // Sorted: the order in which a caller forces choices is no other demand.
  std::vector<Choice> sorted = forced;
  std::ranges::sort(sorted, {}, &Choice::name);
  std::string text = Candidate(std::move(sorted)).to_string();
  const auto add = [&text](const std::string& word) { text += (text.empty() ? "" : " ") + word; };
  if (fp32_only) add("fp32_only");
  if (exact_activation) add("exact_activation");
  if (memory_limit) add(fmt::format("memory_limit={}", *memory_limit));
  if (threads) add(fmt::format("threads<={}", *threads));
  if (timing == Timing::cold) add("timing=cold");
  return text;
}

}  // namespace gnomon
