#include "plan/store_text.hpp"

#include <nlohmann/json.hpp>

#include "core/error.hpp"

namespace gnomon {
namespace {

constexpr int kFormat = 1;
constexpr const char* kFormatKey = "gnomon_plans";

}  // namespace

std::string store_text(const Environment& environment, const std::map<std::string, PlanRecord>& records) {
  using Json = nlohmann::ordered_json;
  const auto dump = [](const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); };
  const auto dump_map = [&](const std::map<std::string, std::string>& map) { return dump(Json(map)); };
  std::string text = fmt::format(
      "{{\n\"{}\": {},\n\"environment\": {{\n  \"device\": {},\n  \"facts\": {},\n"
      "  \"notes\": {}\n}},\n\"plans\": [",
      kFormatKey, kFormat, dump(Json(environment.device)), dump_map(environment.facts), dump_map(environment.notes));
  const char* comma = "\n";
  for (const auto& entry : records) {
    Json plan = entry.second;
    text += comma;
    text += "{\n";
    comma = ",\n";
    for (const auto& [name, value] : plan.items()) {
      if (name == "candidates") continue;
      text += fmt::format("  {}: {},\n", dump(Json(name)), dump(value));
    }
    text += "  \"candidates\": [";
    const char* inner = "\n";
    for (const Json& candidate : plan["candidates"]) {
      text += inner + ("    " + dump(candidate));
      inner = ",\n";
    }
    text += "\n  ]\n}";
  }
  return text + "\n]\n}\n";
}

StoreFile parse_store_file(std::string_view text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (!json.is_object() || !json.contains(kFormatKey))
      throw_environment("this is no plan file: it has no '{}'", kFormatKey);
    if (json.at(kFormatKey) != kFormat)
      throw_environment("plan file of format {}, expected {}", json.at(kFormatKey).dump(), kFormat);
    StoreFile file;
    const nlohmann::json& environment = json.at("environment");
    file.environment.device = environment.at("device").get<std::string>();
    file.environment.facts = environment.at("facts").get<std::map<std::string, std::string>>();
    file.environment.notes = environment.at("notes").get<std::map<std::string, std::string>>();
    const nlohmann::json& plans = json.at("plans");
    if (!plans.is_array()) throw_environment("'plans' should be a list, is {}", plans.type_name());
    for (const nlohmann::json& plan : plans) file.records.push_back(plan.get<PlanRecord>());
    return file;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::environment) throw;
    throw Error(ErrorKind::environment, error.what());  // a grammar error in a file is the file's fault
  } catch (const std::exception& error) {
    throw Error(ErrorKind::environment, error.what());
  }
}

}  // namespace gnomon
