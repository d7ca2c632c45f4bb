#include "cli/engine_flags.hpp"

#include <algorithm>
#include <array>
#include <sstream>

#include "cli/suggestions.hpp"
#include "core/error.hpp"

namespace gnomon::cli {
namespace {

struct Flag {
  const char* spelling;
  const char* option;  // of EngineOptions::set
  const char* value;   // what the flag stands for; null: it takes one
  const char* help;
};

constexpr std::array flags = {
    Flag{"--device", "device", nullptr, "cpu (default) or cuda:N"},
    Flag{"--effort", "effort", nullptr, "estimate | measure (default) | exhaustive | stored"},
    Flag{"--plan-budget", "budget", nullptr, "Seconds of planning for one problem (default 10)"},
    Flag{"--plan-dir", "plan_dir", nullptr,
         "Folder of stored plans; '' keeps them in memory (default $GNOMON_PLAN_DIR or the user's cache)"},
    Flag{"--threads", "threads", nullptr, "Use at most so many threads"},
    Flag{"--memory-limit", "memory_limit", nullptr, "What tensors, weights and scratch may take, as 512MiB"},
    Flag{"--force", "force", nullptr, "Only candidates with these choices: fused_qkv=off,slices=4"},
    Flag{"--timing", "timing", nullptr, "warm (default) | cold: empty the caches before each timed run"},
    Flag{"--fp32-only", "fp32_only", "on", "No bf16, fp16 or tf32"},
    Flag{"--exact-activation", "exact_activation", "on", "No tanh-GELU in place of erf-GELU"},
    Flag{"--range-check", "range_check", nullptr,
         "device (default) | off: what a reduced-precision plan does with unseen ranges"},
};

const std::vector<std::string>& grammar_words() {
  static const std::vector<std::string> words = {"causal", "bi",  "post", "pre",  "gelu",    "gelu_tanh", "relu",
                                                 "f32",    "f16", "bf16", "mask", "nobias",  "finalnorm", "inplace",
                                                 "eps",    "abs", "rel",  "@cpu", "headroom"};
  return words;
}

}  // namespace

EngineFlags::EngineFlags(CLI::App& command) {
  for (const Flag& flag : flags) {
    const std::string option = flag.option;
    CLI::Option* added =
        flag.value == nullptr
            ? command.add_option_function<std::string>(
                  flag.spelling, [this, option](const std::string& value) { given_.emplace_back(option, value); },
                  flag.help)
            : command.add_flag_callback(
                  flag.spelling, [this, option, value = flag.value] { given_.emplace_back(option, value); }, flag.help);
    added->group("Engine");
  }
}

EngineOptions EngineFlags::options() const {
  EngineOptions options;
  for (const auto& [name, value] : given_) options.set(name, value);
  return options;
}

EngineOptions EngineFlags::options(const Problem& problem) const {
  EngineOptions result = options();
  if (!given("device")) result.device = problem.device;
  result.contract = problem.contract;
  return result;
}

bool EngineFlags::given(std::string_view name) const {
  return std::any_of(given_.begin(), given_.end(), [&](const auto& entry) { return entry.first == name; });
}

Problem parse_problem_argument(const std::string& text) {
  try {
    return parse_problem(text);
  } catch (const Error& error) {
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      const bool known = std::find(grammar_words().begin(), grammar_words().end(), word) != grammar_words().end();
      // A number in it: a size, which is not a misspelt word (`d65` is not `f32`).
      const bool numbered = word.substr(0, word.find('=')).find_first_of("0123456789") != std::string::npos;
      if (known || numbered || word.size() < 3) continue;
      if (const std::string hint = suggestion(word, grammar_words()); !hint.empty()) {
        throw Error(error.kind(), error.what() + hint);
      }
    }
    throw;
  }
}

Problem parse_problem_argument(const std::vector<std::string>& words) {
  return parse_problem_argument(fmt::format("{}", fmt::join(words, " ")));
}

std::string stored_name(const Problem& problem, const Constraints& constraints) {
  const std::string demands = constraints.to_string();
  return fmt::format("`{}`{}", to_string(problem), demands.empty() ? "" : fmt::format(" under `{}`", demands));
}

}  // namespace gnomon::cli
