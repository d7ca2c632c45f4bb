// `gnomon plans`: what is stored, and how to move it.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cli/engine_flags.hpp"
#include "cli/engine_plan.hpp"
#include "cli/session.hpp"
#include "cli/table.hpp"
#include "cli/text_file.hpp"
#include "core/error.hpp"

namespace gnomon::cli {
namespace {

struct Arguments {
  explicit Arguments(CLI::App& command) : engine(command) {}
  EngineFlags engine;
  std::vector<std::string> words;
  std::string file = "-";
  bool force = false, all = false;
};

// The store belongs to a device's environment, which only a backend can tell.
PlanStore open_store(const Arguments& arguments) {
  const EngineOptions options = arguments.engine.options();
  const auto backend = backend_without_weights(options.device, options.constraints);
  return PlanStore(options.plan_directory.value_or(default_plan_directory()), backend->environment());
}

// A large problem is timed on a part of itself, which its times are of.
std::string timed_on(const PlanRecord& record) {
  if (record.seconds <= 0) return "-";
  if (record.calibrated_on.empty()) return "the whole";
  const std::size_t batch = record.calibrated_on.find(' ');  // "b64 s100 d128 ..."
  return record.calibrated_on.substr(0, record.calibrated_on.find(' ', batch + 1));
}

void list(const Arguments& arguments, const Session& session) {
  PlanStore store = open_store(arguments);
  std::vector<PlanRecord> records = store.list();
  std::ranges::stable_sort(records, {}, [](const PlanRecord& record) {
    return std::tuple(to_string(record.problem.config), record.problem.seq, record.problem.batch);
  });
  if (session.json) {
    fmt::print("{}\n", nlohmann::json{{"file", store.file().string()}, {"plans", records}}.dump(2));
    return;
  }
  if (records.empty()) {
    fmt::print("No plans of this environment ({}).\n", store.file().string());
    return;
  }
  Table table({{"ms"}, {"x plain"}, {"worst"}, {"problem", false}, {"demands", false}, {"timed on", false}});
  for (const PlanRecord& record : records) {
    const bool timed = record.seconds > 0;
    table.add({timed ? fmt::format("{:.3f}", record.seconds * 1e3) : "-",
               timed && record.plain_seconds > 0 ? fmt::format("{:.2f}", record.plain_seconds / record.seconds) : "-",
               fmt::format("{:.3f}", record.worst), to_string(record.problem),
               record.constraints.empty() ? "-" : record.constraints, timed_on(record)});
  }
  fmt::print("{}{} {} in {}\n", table.text(), records.size(), records.size() == 1 ? "plan" : "plans",
             store.file().string());
}

void show(const Arguments& arguments, const Session& session) {
  const Problem problem = parse_problem_argument(arguments.words);
  PlanStore store = open_store(arguments);
  const Constraints constraints = arguments.engine.options().constraints;
  const std::optional<PlanRecord> record = store.find(problem, constraints);
  if (!record) {
    throw_caller("no plan is stored for {} in {}; `gnomon plans list` shows what is", stored_name(problem, constraints),
                 store.file().string());
  }
  fmt::print("{}", session.json ? nlohmann::json(*record).dump(2) + "\n" : explain_text(*record));
}

void export_plans(const Arguments& arguments) {
  write_text(arguments.file, open_store(arguments).export_json() + "\n");
}

void tell(const Session& session, const char* done, std::size_t count) {
  if (session.json) {
    fmt::print("{}\n", nlohmann::json{{done, count}}.dump());
  } else {
    fmt::print("{} {} {}\n", count, count == 1 ? "plan" : "plans", done);
  }
}

void import_plans(const Arguments& arguments, const Session& session) {
  tell(session, "imported", open_store(arguments).import_json(read_text(arguments.file), arguments.force));
}

void forget(const Arguments& arguments, const Session& session) {
  if (arguments.all != arguments.words.empty()) {
    throw_caller("`plans forget` takes either a PROBLEM or --all, {}", arguments.all ? "got both" : "got neither");
  }
  const std::optional<Problem> problem =
      arguments.all ? std::nullopt : std::optional(parse_problem_argument(arguments.words));
  tell(session, "forgotten", open_store(arguments).forget(problem));
}

}  // namespace

void add_plans(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand("plans", "List, show, export, import and forget stored plans");
  command->require_subcommand(1);
  command->footer(
      "\nExamples:\n  gnomon plans list\n  gnomon plans show \"b64 s100\"\n  gnomon plans export plans.json\n"
      "  gnomon plans import plans.json\n  gnomon plans forget --all");
  const auto add = [&](const char* name, const char* about, const std::string& footer, auto&& action) {
    CLI::App* sub = command->add_subcommand(name, about);
    sub->footer(footer);
    auto arguments = std::make_shared<Arguments>(*sub);
    add_json_flag(*sub, session);
    sub->callback([arguments, action] { action(*arguments); });
    return std::pair(sub, arguments);
  };
  add("list", "All plans of this machine",
      "\nColumns: time of a pass; how many times as long the plain path takes; largest error as share of the "
      "contract's\n"
      "limit; options that the plan was made under (as threads<=1); what was timed, a part of a large problem.\n\n"
      "Examples:\n  gnomon plans list\n  gnomon plans list --json | jq '.plans[].problem'",
      [&session](const Arguments& a) { list(a, session); });

  const auto [show_command, shown] =
      add("show", "One plan, as explain shows it; plans nothing",
          std::string(problem_words) +
              "\nA plan made under options (--threads, --fp32-only, --force, ...) is found with the same options.\n\n"
              "Examples:\n  gnomon plans show \"b64 s100\"\n  gnomon plans show \"b64 s100\" --threads 1",
          [&session](const Arguments& a) { show(a, session); });
  show_command->add_option("PROBLEM", shown->words, "The problem, as \"b64 s100 d128\"")->required();

  const auto [export_command, exported] = add(
      "export", "Plans and their environment as JSON",
      "\nFor machines of the same kind: same processor, cores, libraries and Gnomon. Weights are not part of it.\n\n"
      "Examples:\n  gnomon plans export plans.json\n  gnomon plans export | ssh twin gnomon plans import",
      export_plans);
  export_command->add_option("FILE", exported->file, "Where to (default: stdout)");

  const auto [import_command, imported] = add("import", "Take plans exported on such a machine; all or none",
                                              "\nExamples:\n  gnomon plans import plans.json\n"
                                              "  gnomon plans import plans.json --plan-dir /srv/plans\n"
                                              "  gnomon plans import --anyway plans.json",
                                              [&session](const Arguments& a) { import_plans(a, session); });
  import_command->add_option("FILE", imported->file, "Where from (default: stdin)");
  import_command->add_flag("--anyway", imported->force,
                           "Another environment's too: its choices are checked before use");

  const auto [forget_command, forgotten] =
      add("forget", "Delete plans", "\nExamples:\n  gnomon plans forget \"b64 s100\"\n  gnomon plans forget --all",
          [&session](const Arguments& a) { forget(a, session); });
  forget_command->add_option("PROBLEM", forgotten->words, "The problem, as \"b64 s100 d128\", under all options");
  forget_command->add_flag("--all", forgotten->all, "All plans of this machine");
}

}  // namespace gnomon::cli
