// `gnomon kernels`: the cache of compiled kernels, and filling it where no device is.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/bench_rows.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/table.hpp"
#include "core/error.hpp"
#include "core/memory.hpp"
#include "engine/device_plugin.hpp"
#include "suite.hpp"

namespace gnomon::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::vector<std::string> architectures, problems;
  std::filesystem::path cache;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool suite = false, clear = false, cache_given = false;
};

std::string size(std::uintmax_t bytes) { return format_bytes(static_cast<double>(bytes)); }
std::string count(std::size_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::filesystem::path folder_of(const Arguments& arguments, const DeviceKernels& kernels) {
  const std::filesystem::path folder = arguments.cache_given ? arguments.cache : kernels.default_cache();
  if (folder.empty())
    throw_environment("kernels are kept in memory only: name a folder by --cache, or by GNOMON_KERNEL_CACHE");
  return folder;
}

void list(const std::filesystem::path& folder, const DeviceKernels& kernels, const Session& session) {
  const std::vector<KernelFile> files = kernels.list(folder);
  std::uintmax_t bytes = 0;
  Json rows = Json::array();
  Table table({{"KiB"}, {"architecture", false}, {"compiler", false}, {"kernel", false}});
  for (const KernelFile& file : files) {
    bytes += file.bytes;
    Json row = {{"file", file.file}, {"bytes", file.bytes}};
    if (file.unusable.empty()) {
      row.update({{"kernel", file.name}, {"architecture", file.architecture}, {"compiler", file.compiler}});
      table.add(
          {fmt::format("{:.1f}", static_cast<double>(file.bytes) / 1024), file.architecture, file.compiler, file.name});
    } else {
      row["unusable"] = file.unusable;
      table.add({fmt::format("{:.1f}", static_cast<double>(file.bytes) / 1024), "-", "-",
                 fmt::format("{} {}", file.file, file.unusable)});
    }
    rows.push_back(std::move(row));
  }
  if (session.json) {
    fmt::print("{}\n", Json{{"cache", folder.string()}, {"bytes", bytes}, {"files", rows}}.dump(2));
  } else {
    fmt::print("{}{}, {} in {}\n", files.empty() ? "" : table.text(), count(files.size(), "compiled kernel"),
               size(bytes), folder.string());
  }
}

void clear(const std::filesystem::path& folder, const DeviceKernels& kernels, const Session& session) {
  const KernelFilesRemoved removed = kernels.clear(folder);
  if (session.json) {
    fmt::print("{}\n", Json{{"cache", folder.string()}, {"removed", removed.files}, {"bytes", removed.bytes}}.dump(2));
  } else {
    fmt::print("{}, {} removed from {}\n", count(static_cast<std::size_t>(removed.files), "file"), size(removed.bytes),
               folder.string());
  }
}

std::vector<Problem> problems_of(const Arguments& arguments) {
  std::vector<Problem> problems;
  if (arguments.suite) {
    for (const BenchRow& row : suite_rows(builtin_suite, "the built-in suite")) problems.push_back(row.problem);
  }
  for (const std::string& text : arguments.problems) problems.push_back(problem_row(text).problem);
  if (problems.empty())
    throw_caller("--precompile: for which problems? Name them (\"b64 s100 d128\"), or take --suite");
  return problems;
}

constexpr const char* kHeader = "architecture  registers  shared B  spilled B      s  from      kernel\n";

std::string line(const KernelReport& r) {
  const auto number = [&](int value) { return r.portable || !r.failed.empty() ? "-" : std::to_string(value); };
  return fmt::format("{:<12}  {:>9}  {:>8}  {:>9}  {:>5.1f}  {:<8}  {}\n", r.architecture, number(r.registers),
                     number(r.static_shared_bytes + r.dynamic_shared_bytes), number(r.spilled_bytes), r.seconds,
                     !r.failed.empty() ? "FAILED"
                     : r.from_cache    ? "cache"
                                       : "compiled",
                     r.name);
}

Json json_of(const KernelReport& r) {
  Json json = {{"kernel", r.name},
               {"architecture", r.architecture},
               {"key", r.key},
               {"from_cache", r.from_cache},
               {"seconds", r.seconds}};
  if (!r.failed.empty()) return json["failed"] = r.failed, json;
  json["dynamic_shared_bytes"] = r.dynamic_shared_bytes;
  if (r.portable) return json;
  json.update({{"registers", r.registers},
               {"static_shared_bytes", r.static_shared_bytes},
               {"stack_bytes", r.stack_bytes},
               {"spilled_bytes", r.spilled_bytes}});
  return json;
}

struct Totals {
  int compiled = 0, cached = 0, failed = 0, spilling = 0;
  double work_seconds = 0;  // of all threads together

  explicit Totals(const std::vector<KernelReport>& kernels) {
    for (const KernelReport& r : kernels) {
      failed += !r.failed.empty();
      cached += r.failed.empty() && r.from_cache;
      compiled += r.failed.empty() && !r.from_cache;
      spilling += r.spilled_bytes > 0;
      work_seconds += r.seconds;
    }
  }
};

// What is no file then will be compiled again by who needs it.
void require_files(const std::vector<KernelReport>& kernels, const std::filesystem::path& folder) {
  std::size_t missing = 0;
  for (const KernelReport& r : kernels) {
    std::error_code ignored;
    missing += r.failed.empty() && !std::filesystem::exists(folder / (r.key + ".kernel"), ignored);
  }
  if (missing > 0)
    throw_environment("{} did not become {} in {}", count(missing, "compiled kernel"),
                      missing == 1 ? "a file" : "files", folder.string());
}

void precompile(const Arguments& arguments, const std::filesystem::path& folder, const DeviceKernels& kernels,
                Session& session) {
  ProgressLine progress;
  std::size_t wanted = 0, done = 0;
  KernelWish wish;
  wish.architectures = arguments.architectures;
  wish.problems = problems_of(arguments);
  wish.cache = folder;
  wish.threads = arguments.threads;
  wish.begin = [&](std::size_t n) {
    wanted = n;
    if (!session.json) std::fputs(kHeader, stdout);
  };
  wish.each = [&](const KernelReport& report) {
    progress.clear();
    if (!session.json) {
      std::fputs(line(report).c_str(), stdout);
      std::fflush(stdout);
    }
    progress.show(fmt::format("{} of {} kernels", ++done, wanted));
  };
  const auto start = std::chrono::steady_clock::now();
  const KernelWishes answer = kernels.precompile(wish);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  progress.clear();

  const Totals totals(answer.kernels);
  if (session.json) {
    Json rows = Json::array();
    for (const KernelReport& report : answer.kernels) rows.push_back(json_of(report));
    fmt::print("{}\n", Json{{"cache", folder.string()},
                            {"architectures", arguments.architectures},
                            {"candidates", answer.candidates},
                            {"compiled", totals.compiled},
                            {"from_cache", totals.cached},
                            {"failed", totals.failed},
                            {"spilling", totals.spilling},
                            {"seconds", seconds},
                            {"work_seconds", totals.work_seconds},
                            {"missed", answer.missed},
                            {"kernels", rows}}
                           .dump(2));
  } else {
    fmt::print(
        "{} of {} for {}: {} compiled, {} from the cache, {} failed, {} spilling registers.\n{:.1f} s with {}, "
        "{:.1f} s of work. In {}\n",
        count(answer.kernels.size(), "kernel"), count(static_cast<std::size_t>(answer.candidates), "candidate"),
        fmt::join(arguments.architectures, ", "), totals.compiled, totals.cached, totals.failed, totals.spilling,
        seconds, count(static_cast<std::size_t>(arguments.threads), "thread"), totals.work_seconds, folder.string());
    for (const std::string& text : answer.missed) fmt::print("Not looked into: {}\n", text);
    for (const KernelReport& report : answer.kernels) {
      if (!report.failed.empty()) fmt::print("FAILED {}\n", report.failed);
    }
  }
  if (totals.failed > 0) session.exit_code = exit_internal;
  require_files(answer.kernels, folder);
}

void run(const Arguments& arguments, Session& session) {
  const bool compiles = !arguments.architectures.empty();
  if (!compiles && (arguments.suite || !arguments.problems.empty()))
    throw_caller("kernels: problems are for --precompile, as in `gnomon kernels --precompile sm_90a --suite`");
  if (compiles && arguments.clear) throw_caller("kernels: --clear and --precompile are two commands");
  const DeviceKernels& kernels = cuda_plugin().kernels;
  const std::filesystem::path folder = folder_of(arguments, kernels);
  if (arguments.clear) return clear(folder, kernels, session);
  if (!compiles) return list(folder, kernels, session);
  precompile(arguments, folder, kernels, session);
}

}  // namespace

void add_kernels(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand("kernels", "Show, fill or empty the cache of compiled CUDA kernels");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("PROBLEMS", arguments->problems, "With --precompile: problems, each one argument");
  command->add_flag("--suite", arguments->suite, "With --precompile: the built-in suite's problems");
  command
      ->add_option("--precompile", arguments->architectures,
                   "Compile for these architectures (sm_90a,compute_80); takes no GPU")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--threads", arguments->threads, "Kernels compiled at a time (default: the cores)")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option_function<std::string>(
          "--cache",
          [arguments](const std::string& folder) {
            arguments->cache = folder;
            arguments->cache_given = true;
          },
          "The cache's folder (default $GNOMON_KERNEL_CACHE or the user's cache)")
      ->type_name("DIR");
  command->add_flag("--clear", arguments->clear, "Remove all compiled kernels");
  add_json_flag(*command, session);
  command->footer(
      std::string(problem_words) +
      "\nWithout --precompile and --clear: what is in the cache. --precompile takes NVIDIA's run-time compiler and no "
      "GPU, and\ncompiles what any candidate of the problems asks for on a device of the architecture: a process there "
      "then compiles\nnothing, when it has the same compiler and Gnomon. A problem with a mask, or of another type, is "
      "another problem.\nSpilled registers cost time.\n\n"
      "Examples:\n  gnomon kernels\n  gnomon kernels --precompile sm_90a --suite\n"
      "  gnomon kernels --precompile sm_80,sm_90a \"b32 s128 d384 h12 l6 f1536 bi mask\" --cache kernels/\n"
      "  gnomon kernels --clear");
  command->callback([arguments, &session] { run(*arguments, session); });
}

}  // namespace gnomon::cli
