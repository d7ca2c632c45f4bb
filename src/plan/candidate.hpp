// A Candidate: a named way to run a Problem, as a list of choices. The planner reads no meaning into the names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gnomon {

struct Choice {
  std::string name, value;
  bool operator==(const Choice&) const = default;
};

class Candidate {
 public:
  Candidate() = default;
  explicit Candidate(std::vector<Choice> choices) : choices_(std::move(choices)) {}

  const std::string& get(std::string_view name) const;    // internal error when absent
  const std::string* find(std::string_view name) const;   // null when absent
  bool on(std::string_view name) const;                   // value is "on"
  Candidate with(std::span<const Choice> changes) const;  // same order of names; absent names are appended
  const std::vector<Choice>& choices() const { return choices_; }

  std::string to_string() const;                  // "fused_qkv=on slices=4 ..."
  static Candidate parse(std::string_view text);  // caller error on a malformed word
  bool operator==(const Candidate&) const = default;

 private:
  std::vector<Choice> choices_;
};

// Why a candidate cannot run a problem. `reason` carries numbers ("threads=8: at most 2 here").
struct Refusal {
  std::string reason;
};

// What a candidate finds in the caches when it is timed: what its last run left, or nothing of use.
enum class Timing { warm, cold };

// What the caller demands of any plan. Part of the plan store's key: another demand is another plan.
struct Constraints {
  std::vector<Choice> forced;                // "fused_qkv=off": only candidates with this value
  bool fp32_only = false;                    // no bf16, fp16, tf32
  bool exact_activation = false;             // no tanh in place of erf
  std::optional<std::int64_t> memory_limit;  // bytes, of all that running it takes (memory_need.hpp)
  std::optional<int> threads;                // at most so many
  Timing timing = Timing::warm;              // a demand on the measurement: no candidate is refused for it
  std::string to_string() const;             // "" when nothing is demanded
  bool operator==(const Constraints&) const = default;
};

// Alternatives that one step of the search compares with the incumbent: each is a set of changes to it.
struct Group {
  std::string name;
  std::vector<std::vector<Choice>> alternatives;
  std::vector<std::string> reopened_by;  // names of later groups whose change re-opens this one, once
};

}  // namespace gnomon
