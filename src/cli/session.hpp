// What the commands of `gnomon` share: exit codes, and the way a command joins the program.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace gnomon::cli {

// Stable: scripts may rely on them (docs/cli.md).
enum ExitCode {
  exit_ok = 0,
  exit_check_failed = 1,  // the command ran; what it checked did not hold
  exit_caller = 2,        // the arguments were wrong
  exit_environment = 3,   // memory, files, libraries, devices
  exit_internal = 4,      // a bug in Gnomon
};

struct Session {
  bool json = false;  // results, and errors too, as JSON on stdout
  int exit_code = exit_ok;
};

// Each registers its subcommand and the callback that runs it.
void add_bench(CLI::App& app, Session& session);
void add_run(CLI::App& app, Session& session);
void add_explain(CLI::App& app, Session& session);
void add_verify(CLI::App& app, Session& session);
void add_plans(CLI::App& app, Session& session);
void add_kernels(CLI::App& app, Session& session);
void add_info(CLI::App& app, Session& session);
void add_completion(CLI::App& app, Session& session);

// CLI11 would wrap a negative one round to a huge seed.
inline CLI::Option* add_seed(CLI::App& command, std::uint64_t& seed, const std::string& help) {
  return command.add_option("--seed", seed, help)->check(CLI::NonNegativeNumber);
}

// What --help says of problems: the program's, and that of every command that takes one.
inline constexpr const char* problem_words = R"(
A problem is named by words, in any order; what is left out has the suite's default:
  b64 s100 d128 h4 l3 f512 causal post gelu f32     (the defaults; b: 1)
  b: sequences  s: tokens  d: width  h: heads  l: layers  f: FFN width
  bi|causal  pre|post  gelu|gelu_tanh|relu  f32|f16|bf16  mask  nobias  finalnorm
  eps=1e-5  abs=0.002  rel=0.02  inplace  @cpu
)";

inline CLI::Option* add_json_flag(CLI::App& command, Session& session) {
  return command.add_flag("--json", session.json, "Print JSON on stdout");
}

}  // namespace gnomon::cli
