// `gnomon bench`: plans and measures rows within a budget of time; what cannot run is listed with the reason.
#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>

#include "cli/bench_budget.hpp"
#include "cli/bench_report.hpp"
#include "cli/engine_flags.hpp"
#include "cli/session.hpp"
#include "cli/text_file.hpp"
#include "cli/workload.hpp"
#include "core/error.hpp"
#include "core/memory.hpp"
#include "suite.hpp"

namespace gnomon::cli {
namespace {

constexpr double default_budget = 480, quick_budget = 50;

struct Arguments {
  explicit Arguments(CLI::App& command) : engine(command) {}
  EngineFlags engine;
  std::vector<std::string> problems, models, notes;
  std::string suite, json, csv, shape = "b32 s128 mask";
  std::vector<std::string> only;
  double budget = 0;  // 0: the mode's
  bool quick = false, replan = false, first_calls = false;
};

// CLI11's own ranges let nan pass.
std::string positive_seconds(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc() && end == text.data() + text.size();
  return number && value > 0 && value <= 1e9 ? "" : fmt::format("expected seconds above 0, at most 1e9, got {}", text);
}

bool wanted(const Arguments& arguments, const std::string& id) {
  return arguments.only.empty() || std::any_of(arguments.only.begin(), arguments.only.end(),
                                               [&](const std::string& name) { return name == id || "#" + name == id; });
}

std::vector<BenchRow> rows_of(const Arguments& arguments) {
  std::vector<BenchRow> all;
  if (!arguments.suite.empty()) {
    all = suite_rows(read_text(arguments.suite), arguments.suite);
  } else if (arguments.problems.empty()) {
    all = suite_rows(builtin_suite, "the built-in suite");
  }
  for (const std::string& text : arguments.problems) {
    all.push_back(problem_row(text));
    all.back().id = fmt::format("p{}", all.size());
  }
  for (const std::string& model : arguments.models) all.push_back(model_row(model, arguments.shape));
  std::vector<BenchRow> rows;
  for (BenchRow& row : all) {
    if (!wanted(arguments, row.id)) continue;
    row.problem.device = arguments.engine.options(row.problem).device;
    rows.push_back(std::move(row));
  }
  if (rows.empty()) {
    std::vector<std::string> ids;
    for (const BenchRow& row : all) ids.push_back(row.id.starts_with('#') ? row.id.substr(1) : row.id);
    throw_caller("--only {}: no such row; the rows are {}", fmt::join(arguments.only, ","), fmt::join(ids, ","));
  }
  return rows;
}

std::string too_large(const BenchRow& row) {
  const double needs = least_bytes(row);
  const AvailableMemory memory = available_memory();
  if (needs <= static_cast<double>(memory.bytes)) return "";
  return fmt::format("memory: needs at least {}, {} are available (by {})", format_bytes(needs),
                     format_bytes(static_cast<double>(memory.bytes)), memory.source);
}

// A row that fails tells why and the others go on.
template <typename Measure>
RowResult guarded(Measure&& measure) {
  RowResult result;
  try {
    return measure();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::caller) throw;
    result.not_run = error.what();
    result.failed = error.kind() == ErrorKind::internal;
  } catch (const std::bad_alloc&) {
    result.not_run = "memory: an allocation failed while it ran";
  }
  return result;
}

EngineOptions options_for(const Arguments& arguments, const BenchRow& row, ProgressLine& progress) {
  EngineOptions options = arguments.engine.options(row.problem);
  options.progress = progress.planner(row.id);
  options.total_budget_seconds = 1e6;  // the bench's own budget rules
  if (arguments.replan) options.plan_directory = std::filesystem::path();
  return options;
}

RowResult first_calls_of(const Arguments& arguments, const BenchRow& row, ProgressLine& progress) {
  EngineOptions options = arguments.engine.options(row.problem);
  options.progress = progress.planner(row.id);
  RowResult result;
  result.first_calls = measure_first_calls(row.problem, weights_of(row.weights, row.problem.config, 1), options);
  return result;
}

BenchReport measure(const Arguments& arguments, std::vector<BenchRow> rows) {
  ProgressLine progress;
  BenchReport report;
  report.budget_seconds = arguments.budget > 0 ? arguments.budget : arguments.quick ? quick_budget : default_budget;
  report.cold = arguments.engine.options().constraints.timing == Timing::cold;
  report.first_calls = arguments.first_calls;
  report.rows = std::move(rows);
  report.results.resize(report.rows.size());
  const double start = steady_clock().now();
  const auto elapsed = [&] { return steady_clock().now() - start; };

  if (arguments.first_calls) {
    report.budget_seconds = arguments.engine.options().budget_seconds;  // of each planning
    for (std::size_t i = 0; i < report.rows.size(); ++i) {
      RowResult& result = report.results[i];
      result.not_run = too_large(report.rows[i]);
      if (result.not_run.empty()) result = guarded([&] { return first_calls_of(arguments, report.rows[i], progress); });
    }
    report.seconds = elapsed();
    return report;
  }
  std::vector<double> plain_seconds;
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    report.results[i].not_run = too_large(report.rows[i]);
    const bool fits = report.results[i].not_run.empty();
    plain_seconds.push_back(fits ? estimated_plain_seconds(report.rows[i], arguments.engine.options().constraints)
                                 : std::numeric_limits<double>::infinity());
  }
  const BenchBudget budget(report.budget_seconds, plain_seconds);
  for (std::size_t place = 0; place < budget.order().size(); ++place) {
    const BenchRow& row = report.rows[budget.order()[place]];
    RowResult& result = report.results[budget.order()[place]];
    if (!result.not_run.empty()) continue;
    const RowBudget share = budget.share(place, report.budget_seconds - elapsed(), result.not_run);
    if (!result.not_run.empty()) continue;
    result = guarded([&] { return measure_row(row, options_for(arguments, row, progress), share, progress); });
  }
  report.seconds = elapsed();
  return report;
}

void run(const Arguments& arguments, Session& session) {
  session.json = arguments.json == "-";
  BenchReport report = measure(arguments, rows_of(arguments));
  for (const std::string& note : arguments.notes) {
    const std::size_t equals = std::min(note.find('='), note.size());
    report.notes.emplace_back(note.substr(0, equals), note.substr(std::min(equals + 1, note.size())));
  }
  if (!arguments.json.empty()) write_text(arguments.json, bench_json(report).dump(2) + "\n");
  if (!arguments.csv.empty()) write_text(arguments.csv, bench_csv(report));
  if (arguments.json != "-" && arguments.csv != "-") fmt::print("{}", bench_table(report));
  const auto ran = [](const RowResult& result) { return result.not_run.empty(); };
  if (std::ranges::none_of(report.results, ran)) session.exit_code = exit_environment;
  for (const RowResult& result : report.results) {
    if (result.failed)
      session.exit_code = std::max<int>(session.exit_code, result.not_run.empty() ? exit_check_failed : exit_internal);
  }
}

}  // namespace

void add_bench(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand("bench", "Plan, check and measure the suite, or problems of your own");
  auto arguments = std::make_shared<Arguments>(*command);
  command->add_option("PROBLEMS", arguments->problems,
                      "Problems, each one argument: \"b64 s100 d128\" (default: the suite)");
  command->add_option("--suite", arguments->suite, "A suite file (default: the built-in one)");
  command->add_option("--only", arguments->only, "Only these rows, by id: 1,2,MiniLM")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--model", arguments->models, "NAME=PATH: a row with the weights of a .safetensors file")
      ->allow_extra_args(false);
  command->add_option("--shape", arguments->shape, "What the models run on (default: \"b32 s128 mask\")");
  command->add_flag("--quick", arguments->quick, "Under a minute: a budget of 50 s, large shapes left out");
  command->add_option("--budget", arguments->budget, "Seconds for the whole bench (default 480), split over the rows")
      ->check(positive_seconds);
  command->add_flag("--replan", arguments->replan, "Neither use nor keep stored plans");
  command->add_flag("--first-calls", arguments->first_calls,
                    "Measure what a first call costs, and nothing else: with nothing kept of earlier processes, with "
                    "compiled kernels kept, with plans kept too");
  command->add_option("--json", arguments->json, "Write JSON to FILE, or - for stdout");
  command->add_option("--csv", arguments->csv, "Write CSV to FILE, or - for stdout");
  command->add_option("--note", arguments->notes, "NAME=VALUE kept in the JSON, as commit=1a2b3c")
      ->allow_extra_args(false);
  command->footer(
      std::string(problem_words) +
      "\nExits with 1 when an answer is out of contract, with 3 when no row could run. A row that cannot run is listed "
      "with\n"
      "the reason.\n\n"
      "Examples:\n  gnomon bench --quick\n  gnomon bench \"b64 s100 d128\" \"b1 s512 d768 h12 f3072 bi\"\n"
      "  gnomon bench --only 1,5,9 --json results.json\n"
      "  gnomon bench --model MiniLM=model.safetensors --shape \"b32 s128 mask\"");
  command->callback([arguments, &session] { run(*arguments, session); });
}

}  // namespace gnomon::cli
