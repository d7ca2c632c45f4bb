// gnomon_explain and gnomon_plans_*: see include/gnomon/gnomon.h.
#include <nlohmann/json.hpp>

#include "api/handles.hpp"

using namespace gnomon;
using namespace gnomon::capi;

namespace {

// "b64 s100" on this engine: what the text leaves out is the engine's; what it says must agree with the engine.
Problem problem_on(const Engine& engine, const char* text) {
  Problem problem = parse_problem(text);
  const Problem defaults;
  if (problem.config != defaults.config && problem.config != engine.config()) {
    throw_caller("problem `{}` has the structure `{}`, this engine's weights have `{}`; name B, S and dtype only", text,
                 to_string(problem.config), to_string(engine.config()));
  }
  problem.config = engine.config();
  if (problem.contract == defaults.contract) problem.contract = engine.options().contract;
  if (problem.device == defaults.device) problem.device = engine.options().device;
  return problem;
}

std::optional<Problem> optional_problem_on(const Engine& engine, const char* text) {
  if (text == nullptr) return std::nullopt;
  return problem_on(engine, text);
}

nlohmann::json explanation(Engine& engine, const std::optional<Problem>& problem) {
  if (!problem) return engine.explain_all();
  const std::optional<PlanRecord> record = engine.explain(*problem);
  return record ? nlohmann::json(*record) : nlohmann::json();
}

}  // namespace

gnomon_status gnomon_explain(gnomon_engine* engine, const char* problem, char** out) {
  return guarded([&] {
    *require(out, "out") = nullptr;
    Engine& value = require(engine, "engine")->value;
    *out = copy_text(explanation(value, optional_problem_on(value, problem)).dump());
  });
}

gnomon_status gnomon_plans_export(gnomon_engine* engine, char** out) {
  return guarded([&] {
    *require(out, "out") = nullptr;
    *out = copy_text(require(engine, "engine")->value.store().export_json());
  });
}

gnomon_status gnomon_plans_import(gnomon_engine* engine, const char* json, int force, size_t* count) {
  return guarded([&] {
    const std::size_t imported =
        require(engine, "engine")->value.store().import_json(require(json, "json"), force != 0);
    if (count != nullptr) *count = imported;
  });
}

gnomon_status gnomon_plans_forget(gnomon_engine* engine, const char* problem, size_t* count) {
  return guarded([&] {
    Engine& value = require(engine, "engine")->value;
    const std::size_t forgotten = value.forget(optional_problem_on(value, problem));
    if (count != nullptr) *count = forgotten;
  });
}
