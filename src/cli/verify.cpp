// `gnomon verify PROBLEM`: the plan's answers on fresh random inputs against the reference, element by element.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/engine_flags.hpp"
#include "cli/engine_plan.hpp"
#include "cli/interrupt.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/table.hpp"
#include "cli/workload.hpp"

namespace gnomon::cli {
namespace {

struct Arguments {
  explicit Arguments(CLI::App& command) : engine(command) {}
  EngineFlags engine;
  std::vector<std::string> words;
  std::string weights;
  std::uint64_t seed = 1;
  int samples = 5;
  bool no_masks = false;
};

struct Sample {
  std::string problem, mask;
  std::uint64_t seed;
  Verdict verdict;
  bool holds() const { return verdict.fault.empty() && verdict.out_of_contract == 0; }
};

// One engine's answers and the reference's, on the same weights. A bench judges: it needs little memory at any length,
// poisons the output and guards its borders.
class Comparison {
 public:
  Comparison(std::shared_ptr<const Weights> weights, const EngineOptions& options)
      : engine_(*weights, options), backend_(make_backend(options.device, weights, options.constraints)) {}

  Verdict on(const Problem& problem, std::uint64_t seed, MaskKind kind) {
    Workload workload(problem, seed, kind);
    EnginePlan forward(engine_);
    return backend_->open_workbench(problem, workload.call())->check(forward);
  }

 private:
  Engine engine_;
  InterruptiblePlanning interruptible_{engine_};
  std::unique_ptr<Backend> backend_;
};

std::vector<Sample> verify(Problem problem, const Arguments& arguments, ProgressLine& progress) {
  const auto weights = std::make_shared<const Weights>(weights_of(arguments.weights, problem.config, arguments.seed));
  EngineOptions options = arguments.engine.options(problem);
  options.progress = progress.planner("verify");
  problem.device = options.device;
  Comparison comparison(weights, options);
  std::vector<Sample> samples;
  const auto sample = [&](const Problem& posed, MaskKind kind, std::uint64_t seed) {
    progress.show(fmt::format("verify: sample {}", samples.size() + 1));
    samples.push_back(
        {to_string(posed), posed.mask ? std::string(name_of(kind)) : "none", seed, comparison.on(posed, seed, kind)});
  };
  for (int i = 0; i < arguments.samples; ++i) {
    const auto kind = all_mask_kinds[static_cast<std::size_t>(i) % std::size(all_mask_kinds)];
    const std::uint64_t seed = arguments.seed + 1 + static_cast<std::uint64_t>(i);
    sample(problem, kind, seed);
    if (problem.mask || arguments.no_masks) continue;
    Problem masked = problem;
    masked.mask = true;
    sample(masked, kind, seed);
  }
  return samples;
}

nlohmann::ordered_json json_of(const Sample& sample) {
  return {{"problem", sample.problem},     {"mask", sample.mask},
          {"seed", sample.seed},           {"elements", sample.verdict.elements},
          {"worst", sample.verdict.worst}, {"out_of_contract", sample.verdict.out_of_contract},
          {"holds", sample.holds()}};
}

void print_text(const std::vector<Sample>& samples, std::size_t failed) {
  Table table({{"seed"}, {"mask", false}, {"elements"}, {"worst/limit"}, {"out"}, {"verdict", false}});
  for (const Sample& sample : samples) {
    const Verdict& verdict = sample.verdict;
    std::string text = "holds";
    if (!sample.holds()) {
      text = verdict.fault.empty() ? fmt::format("element {} is {}, reference {}", verdict.first_bad, verdict.bad_value,
                                                 verdict.bad_reference)
                                   : verdict.fault;
    }
    table.add({std::to_string(sample.seed), sample.mask, std::to_string(verdict.elements),
               fmt::format("{:.3g}", verdict.worst), std::to_string(verdict.out_of_contract), text});
  }
  fmt::print("{}{}: {} samples, {} broke the contract\n", table.text(), samples.front().problem, samples.size(),
             failed);
}

void run(const Arguments& arguments, Session& session) {
  const Problem problem = parse_problem_argument(arguments.words);
  ProgressLine progress;
  const std::vector<Sample> samples = verify(problem, arguments, progress);
  progress.clear();
  std::size_t failed = 0;
  for (const Sample& sample : samples) failed += sample.holds() ? 0 : 1;
  session.exit_code = failed == 0 ? exit_ok : exit_check_failed;
  if (!session.json) return print_text(samples, failed);
  nlohmann::ordered_json json = {
      {"problem", to_string(problem)}, {"failed", failed}, {"samples", nlohmann::json::array()}};
  for (const Sample& sample : samples) json["samples"].push_back(json_of(sample));
  fmt::print("{}\n", json.dump(2));
}

}  // namespace

void add_verify(CLI::App& app, Session& session) {
  CLI::App* command =
      app.add_subcommand("verify", "Check a plan's answers on fresh random inputs against the reference");
  auto arguments = std::make_shared<Arguments>(*command);
  command->add_option("PROBLEM", arguments->words, "The problem, as \"b64 s100 d128\"")->required();
  command->add_option("-n,--samples", arguments->samples, "How many inputs (default 5)")->check(CLI::Range(1, 1000000));
  add_seed(*command, arguments->seed, "Seed of weights and inputs (default 1)");
  command->add_option("--weights", arguments->weights, "Use these weights (safetensors) instead of random ones");
  command->add_flag("--no-masks", arguments->no_masks, "Do not check the same problem with padding masks as well");
  add_json_flag(*command, session);
  command->footer(std::string(problem_words) +
                  "\nExits with 1 when any element is out of contract.\n\nExamples:\n  gnomon verify \"b64 s100\"\n"
                  "  gnomon verify \"b8 s128 d384 h12 l6 f1536 bi mask\" -n 20 --effort stored");
  command->callback([arguments, &session] { run(*arguments, session); });
}

}  // namespace gnomon::cli
