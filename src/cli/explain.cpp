// `gnomon explain PROBLEM`: every candidate with its time, error, verdict and reason.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/engine_flags.hpp"
#include "cli/interrupt.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/workload.hpp"
#include "core/error.hpp"

namespace gnomon::cli {
namespace {

struct Arguments {
  explicit Arguments(CLI::App& command) : engine(command) {}
  EngineFlags engine;
  std::vector<std::string> words;
  std::string weights;
  std::uint64_t seed = 1;
  bool stored = false;
};

PlanRecord record_of(Engine& engine, const Problem& problem, const Arguments& arguments) {
  const std::optional<PlanRecord> known = engine.explain(problem);
  const EngineOptions& options = engine.options();
  if (known && (arguments.stored || known->satisfies(options.effort, options.budget_seconds))) return *known;
  if (arguments.stored) {
    throw_caller(
        "no plan is stored for {} on this machine; leave --stored away to plan it now, `gnomon plans list` shows what "
        "is",
        stored_name(problem, options.constraints));
  }
  Workload workload(problem, arguments.seed);
  return engine.plan(workload.call());
}

void run(const Arguments& arguments, const Session& session) {
  Problem problem = parse_problem_argument(arguments.words);
  ProgressLine progress;
  EngineOptions options = arguments.engine.options(problem);
  options.progress = progress.planner("explain");
  problem.device = options.device;
  Engine engine(weights_of(arguments.weights, problem.config, arguments.seed), options);
  const InterruptiblePlanning interruptible(engine);
  const PlanRecord record = record_of(engine, problem, arguments);
  progress.clear();
  if (session.json) {
    fmt::print("{}\n", nlohmann::json(record).dump(2));
  } else {
    fmt::print("{}", explain_text(record));
  }
}

}  // namespace

void add_explain(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "explain",
      "Show why a problem's plan is what it is; plan it if it is unknown, was cut short or planned with less effort");
  auto arguments = std::make_shared<Arguments>(*command);
  command->add_option("PROBLEM", arguments->words, "The problem, as \"b64 s100 d128\"")->required();
  command->add_option("--weights", arguments->weights, "Plan with these weights (safetensors) instead of random ones");
  add_seed(*command, arguments->seed, "Seed of random weights and input (default 1)");
  command->add_flag("--stored", arguments->stored, "Do not plan: show what is stored, or fail");
  add_json_flag(*command, session);
  command->footer(std::string(problem_words) +
                  "\nExamples:\n  gnomon explain \"b64 s100\"\n  gnomon explain b1 s100 d256 f1024 bi mask --json\n"
                  "  gnomon explain \"b64 s100\" --effort exhaustive --plan-budget 60\n"
                  "  gnomon explain \"b64 s100\" --force slices=1 --plan-dir ''");
  command->callback([arguments, &session] { run(*arguments, session); });
}

}  // namespace gnomon::cli
