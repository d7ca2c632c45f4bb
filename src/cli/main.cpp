// The command line `gnomon`: one file per command.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "cli/session.hpp"
#include "cli/suggestions.hpp"
#include "core/error.hpp"
#include "core/memory.hpp"

namespace gnomon::cli {
namespace {

constexpr const char* about =
    "Gnomon runs the forward pass of a Transformer stack as fast as this machine can,\n"
    "and finds out how by measuring.";

constexpr const char* epilogue = R"(
Examples:
  gnomon bench --quick                          measure this machine in under a minute
  gnomon explain "b64 s100 d128"                why the plan is what it is
  gnomon run model.safetensors -i x.npy -o y.npy
  gnomon verify "b8 s128 d384 h12 l6 f1536 bi mask"

Exit codes: 0 done; 1 a check failed; 2 wrong arguments; 3 the environment (memory,
files, libraries); 4 a bug in Gnomon.)";

const char* kind_name(int code) {
  switch (code) {
    case exit_caller:
      return "caller";
    case exit_environment:
      return "environment";
    default:
      return "internal";
  }
}

int report(const Session& session, int code, const std::string& message) {
  std::fputs(fmt::format("gnomon: {}\n", message).c_str(), stderr);  // throws nothing where stderr is closed
  if (session.json) {
    const std::string json = nlohmann::json{{"error", {{"kind", kind_name(code)}, {"message", message}}}}.dump(
        2, ' ', false, nlohmann::json::error_handler_t::replace);
    std::puts(json.c_str());  // throws nothing: what goes wrong with stdout is looked at last
  }
  return code;
}

void build(CLI::App& app, Session& session) {
  app.set_version_flag("--version", "gnomon " GNOMON_VERSION);
  app.footer(std::string(problem_words) + epilogue);
  app.require_subcommand(0, 1);
  for (const auto add :
       {add_bench, add_run, add_explain, add_verify, add_plans, add_kernels, add_info, add_completion}) {
    add(app, session);
  }
}

int run(int argc, char** argv) {
  Session session;
  CLI::App app{about, "gnomon"};
  build(app, session);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) {
      fmt::print("{}", app.help());
      return exit_caller;
    }
    return session.exit_code;
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    // Nothing was parsed, so the flag is looked for by hand.
    session.json = std::any_of(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--json"; });
    return report(session, exit_caller, explain_parse_error(app, error, argc, argv));
  } catch (const Error& error) {
    return report(session, static_cast<int>(error.kind()) + 1, error.what());
  } catch (const std::bad_alloc&) {
    return report(session, exit_environment, "out of memory; free some, or set --memory-limit");
  } catch (const std::system_error& error) {  // a thread that cannot start
    return report(session, exit_environment, error.what());
  } catch (const std::exception& error) {
    return report(session, exit_internal, fmt::format("{} (this is a bug in Gnomon)", error.what()));
  }
}

// Results that nobody got are no results: a full disk, a closed pipe.
int delivered(int code) {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return code;
  if (code != exit_environment)
    std::fputs(fmt::format("gnomon: stdout took not all of the output{}\n",
                           errno ? fmt::format(": {}", std::strerror(errno)) : "")
                   .c_str(),
               stderr);
  return exit_environment;
}

// A file of ours that got the number of a closed stream would be written over by what is printed. What takes it here is
// opened the wrong way round, so that using the stream fails as before.
void hold_closed_streams() {
  for (int stream = 0; stream <= 2; ++stream) {
    if (fcntl(stream, F_GETFD) < 0) static_cast<void>(open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY));
  }
}

}  // namespace
}  // namespace gnomon::cli

int main(int argc, char** argv) {
  gnomon::share_one_heap_under_limits();
  gnomon::cli::hold_closed_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` fails with a reason
  return gnomon::cli::delivered(gnomon::cli::run(argc, argv));
}
