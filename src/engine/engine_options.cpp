// Options from text, for the command line and the C interface. Each row: a name, what it takes, and how it is read.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "engine/engine.hpp"

namespace gnomon {
namespace {

struct Setting {
  std::string_view name, value, takes;

  [[noreturn]] void refuse() const { throw_caller("option {}: expected {}, got \"{}\"", name, takes, value); }

  template <typename Number>
  Number number(Number least, Number most) const {
    Number result{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc{} || end != value.data() + value.size() || !(result >= least && result <= most)) refuse();
    return result;
  }
  bool on_off() const {
    if (value != "on" && value != "off") refuse();
    return value == "on";
  }
  std::int64_t bytes() const;
  std::vector<Choice> choices() const;
  Effort effort() const;
};

std::int64_t Setting::bytes() const {
  static constexpr std::array<std::pair<std::string_view, int>, 5> kUnits = {
      {{"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}}};
  double count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  const std::string_view unit = value.substr(static_cast<std::size_t>(end - value.data()));
  for (const auto& [suffix, shift] : kUnits) {
    const double result = std::ldexp(count, shift);
    if (error == std::errc{} && unit == suffix && result >= 0 && result < 0x1p62)
      return static_cast<std::int64_t>(result);
  }
  refuse();
}

std::vector<Choice> Setting::choices() const {
  std::vector<Choice> result;
  for (std::string_view rest = value; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view word = rest.substr(0, comma);
    const std::size_t equals = word.find('=');
    if (equals == 0 || equals == std::string_view::npos || equals + 1 == word.size()) refuse();
    if (std::ranges::find(result, word.substr(0, equals), &Choice::name) != result.end()) refuse();
    result.push_back({std::string(word.substr(0, equals)), std::string(word.substr(equals + 1))});
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return result;
}

Effort Setting::effort() const {
  if (value == "estimate") return Effort::estimate;
  if (value == "measure") return Effort::measure;
  if (value == "exhaustive") return Effort::exhaustive;
  if (value == "stored") return Effort::stored;
  refuse();
}

struct Row {
  std::string_view name, takes;
  void (*apply)(EngineOptions&, const Setting&);
};

constexpr double kForever = 1e9;  // seconds; a budget nobody means to reach
constexpr double kLargest = std::numeric_limits<double>::max();
constexpr std::string_view kSeconds = "seconds, 0 or more", kSwitch = "on or off", kTolerance = "a number, 0 or more";

constexpr std::array kRows = {
    Row{"device", "cpu or cuda:N", [](EngineOptions& o, const Setting& s) { o.device = s.value; }},
    Row{"effort", "estimate, measure, exhaustive or stored",
        [](EngineOptions& o, const Setting& s) { o.effort = s.effort(); }},
    Row{"budget", kSeconds, [](EngineOptions& o, const Setting& s) { o.budget_seconds = s.number(0.0, kForever); }},
    Row{"total_budget", kSeconds,
        [](EngineOptions& o, const Setting& s) { o.total_budget_seconds = s.number(0.0, kForever); }},
    Row{"plan_dir", "a folder, or nothing to keep plans in memory",
        [](EngineOptions& o, const Setting& s) { o.plan_directory = std::filesystem::path(s.value); }},
    Row{"fp32_only", kSwitch, [](EngineOptions& o, const Setting& s) { o.constraints.fp32_only = s.on_off(); }},
    Row{"exact_activation", kSwitch,
        [](EngineOptions& o, const Setting& s) { o.constraints.exact_activation = s.on_off(); }},
    Row{"memory_limit", "bytes, such as 536870912, 512MiB or 1.5GiB",
        [](EngineOptions& o, const Setting& s) { o.constraints.memory_limit = s.bytes(); }},
    Row{"threads", "a whole number, 1 or more",
        [](EngineOptions& o, const Setting& s) {
          o.constraints.threads = s.number(1, std::numeric_limits<int>::max());
        }},
    Row{"force", "choices such as fused_qkv=off,slices=4",
        [](EngineOptions& o, const Setting& s) { o.constraints.forced = s.choices(); }},
    Row{"timing", "warm or cold",
        [](EngineOptions& o, const Setting& s) {
          if (s.value != "warm" && s.value != "cold") s.refuse();
          o.constraints.timing = s.value == "cold" ? Timing::cold : Timing::warm;
        }},
    Row{"background", kSwitch, [](EngineOptions& o, const Setting& s) { o.background = s.on_off(); }},
    Row{"abs", kTolerance, [](EngineOptions& o, const Setting& s) { o.contract.abs = s.number(0.0, kLargest); }},
    Row{"rel", kTolerance, [](EngineOptions& o, const Setting& s) { o.contract.rel = s.number(0.0, kLargest); }},
    Row{"headroom", "a number above 0, at most 1",
        [](EngineOptions& o, const Setting& s) {
          const double headroom = s.number(0.0, 1.0);
          if (headroom == 0) s.refuse();
          o.contract.headroom = headroom;
        }},
    Row{"max_plans", "a whole number, 1 or more",
        [](EngineOptions& o, const Setting& s) {
          o.max_plans = static_cast<std::size_t>(s.number<std::int64_t>(1, std::numeric_limits<std::int64_t>::max()));
        }},
    Row{"range_check", "device or off",
        [](EngineOptions& o, const Setting& s) {
          if (s.value != "device" && s.value != "off") s.refuse();
          o.range_check = s.value;
        }},
};

}  // namespace

void EngineOptions::set(std::string_view name, std::string_view value) {
  std::string names;
  for (const Row& row : kRows) {
    if (row.name == name) return row.apply(*this, Setting{name, value, row.takes});
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  throw_caller("unknown option \"{}\"; the options are {}", name, names);
}

}  // namespace gnomon
