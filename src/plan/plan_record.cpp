#include "plan/plan_record.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"

namespace gnomon {
namespace {

constexpr std::array<std::pair<Effort, std::string_view>, 4> kEfforts{{{Effort::estimate, "estimate"},
                                                                       {Effort::measure, "measure"},
                                                                       {Effort::exhaustive, "exhaustive"},
                                                                       {Effort::stored, "stored"}}};
constexpr std::array<std::pair<Outcome, std::string_view>, 8> kOutcomes{{{Outcome::won, "won"},
                                                                         {Outcome::lost, "lost"},
                                                                         {Outcome::tied, "tied"},
                                                                         {Outcome::halved, "halved"},
                                                                         {Outcome::rejected, "rejected"},
                                                                         {Outcome::refused, "refused"},
                                                                         {Outcome::untimed, "untimed"},
                                                                         {Outcome::estimated, "estimated"}}};

template <typename Table, typename Enum>
std::string_view word_of(const Table& table, Enum value) {
  for (const auto& [key, word] : table) {
    if (key == value) return word;
  }
  throw_internal("unnamed value {}", static_cast<int>(value));
}

template <typename Table>
auto value_of(const Table& table, const std::string& word) {
  for (const auto& [key, name] : table) {
    if (name == word) return key;
  }
  throw_environment("plan record: '{}' is no word that belongs here", word);
}

// JSON has no infinity and no NaN, and a rejected candidate's error can be either.
template <typename Json>
Json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double read_number(const nlohmann::json& json, const char* key) {
  const nlohmann::json& value = json.at(key);
  if (value.is_number()) return value.get<double>();
  const std::string word = value.get<std::string>();
  if (word == "inf") return INFINITY;
  if (word == "-inf") return -INFINITY;
  if (word == "nan") return NAN;
  throw_environment("plan record: '{}' should be a number, is '{}'", key, word);
}

template <typename Integer>
Integer read_integer(const nlohmann::json& json, const char* key) {
  const nlohmann::json& value = json.at(key);
  // get() would cast a float, and out of range that is undefined.
  if (value.is_number_unsigned()) {
    const auto wide = value.get<std::uint64_t>();
    if (std::in_range<Integer>(wide)) return static_cast<Integer>(wide);
  } else if (value.is_number_integer()) {
    const auto wide = value.get<std::int64_t>();
    if (std::in_range<Integer>(wide)) return static_cast<Integer>(wide);
  }
  throw_environment("plan record: '{}' should be a whole number in range, is {}", key, value.type_name());
}

template <typename Json>
Json candidate_json(const CandidateReport& report) {
  Json json;
  json["candidate"] = report.candidate.to_string();
  json["outcome"] = name_of(report.outcome);
  json["reason"] = report.reason;
  json["group"] = report.group;
  json["samples"] = report.samples;
  json["seconds"] = {number<Json>(report.seconds_low), number<Json>(report.seconds), number<Json>(report.seconds_high)};
  json["ratio"] = {number<Json>(report.ratio_low), number<Json>(report.ratio), number<Json>(report.ratio_high)};
  json["worst"] = number<Json>(report.worst);
  json["approximations"] = report.approximations;
  return json;
}

template <std::size_t N>
std::array<double, N> read_numbers(const nlohmann::json& json, const char* key) {
  const nlohmann::json& values = json.at(key);
  if (!values.is_array() || values.size() != N) throw_environment("plan record: '{}' should be {} numbers", key, N);
  std::array<double, N> numbers{};
  for (std::size_t i = 0; i < N; ++i) numbers[i] = read_number({{"value", values[i]}}, "value");
  return numbers;
}

// Files made before the range had a lower end hold one number. No weights' fingerprint is 0: such a plan is judged
// again before its reduced precision is trusted.
void read_range(const nlohmann::json& json, PlanRecord& record) {
  if (!json.at("verified_range").is_array()) {
    record.verified_range = {0, read_number(json, "verified_range")};
    record.weights_fingerprint = 0;
    return;
  }
  const auto [low, high] = read_numbers<2>(json, "verified_range");
  record.verified_range = {low, high};
}

CandidateReport read_candidate(const nlohmann::json& json) {
  CandidateReport report;
  report.candidate = Candidate::parse(json.at("candidate").get<std::string>());
  report.outcome = value_of(kOutcomes, json.at("outcome").get<std::string>());
  report.reason = json.at("reason").get<std::string>();
  report.group = json.at("group").get<std::string>();
  report.samples = read_integer<int>(json, "samples");
  const auto seconds = read_numbers<3>(json, "seconds"), ratio = read_numbers<3>(json, "ratio");
  report.seconds_low = seconds[0], report.seconds = seconds[1], report.seconds_high = seconds[2];
  report.ratio_low = ratio[0], report.ratio = ratio[1], report.ratio_high = ratio[2];
  report.worst = read_number(json, "worst");
  report.approximations = json.at("approximations").get<std::vector<std::string>>();
  return report;
}

template <typename Json>
void write_record(Json& json, const PlanRecord& record) {
  json = Json::object();
  json["problem"] = to_string(record.problem);
  json["constraints"] = record.constraints;
  json["winner"] = record.winner.to_string();
  json["effort"] = name_of(record.effort);
  json["seconds"] = number<Json>(record.seconds);
  json["plain_seconds"] = number<Json>(record.plain_seconds);
  json["bound"] = record.bound;
  json["worst"] = number<Json>(record.worst);
  json["verified_range"] = {number<Json>(record.verified_range.low), number<Json>(record.verified_range.high)};
  json["weights_fingerprint"] = record.weights_fingerprint;
  json["calibrated_on"] = record.calibrated_on;
  json["budget_exhausted"] = record.budget_exhausted;
  json["budget_seconds"] = number<Json>(record.budget_seconds);
  json["planning_seconds"] = number<Json>(record.planning_seconds);
  json["timing_runs"] = record.timing_runs;
  json["scratch_bytes"] = record.scratch_bytes;
  json["notes"] = record.notes;
  json["made_under"] = record.made_under;
  json["candidates"] = Json::array();
  for (const CandidateReport& report : record.candidates) json["candidates"].push_back(candidate_json<Json>(report));
}

}  // namespace

std::string_view name_of(Effort effort) { return word_of(kEfforts, effort); }
std::string_view name_of(Outcome outcome) { return word_of(kOutcomes, outcome); }

bool PlanRecord::satisfies(Effort wanted, double budget) const {
  if (effort < wanted) return false;
  const bool ended_early = budget_exhausted && wanted != Effort::estimate;
  return !ended_early || budget <= 0 || budget < 2 * budget_seconds;
}

void to_json(nlohmann::json& json, const PlanRecord& record) { write_record(json, record); }
void to_json(nlohmann::ordered_json& json, const PlanRecord& record) { write_record(json, record); }

void from_json(const nlohmann::json& json, PlanRecord& record) {
  record.problem = parse_problem(json.at("problem").get<std::string>());
  record.constraints = json.at("constraints").get<std::string>();
  record.winner = Candidate::parse(json.at("winner").get<std::string>());
  record.effort = value_of(kEfforts, json.at("effort").get<std::string>());
  record.seconds = read_number(json, "seconds");
  record.plain_seconds = read_number(json, "plain_seconds");
  record.bound = json.at("bound").get<std::string>();
  record.worst = read_number(json, "worst");
  record.weights_fingerprint = read_integer<std::uint64_t>(json, "weights_fingerprint");
  read_range(json, record);
  record.calibrated_on = json.at("calibrated_on").get<std::string>();
  if (!record.calibrated_on.empty()) parse_problem(record.calibrated_on);
  record.budget_exhausted = json.at("budget_exhausted").get<bool>();
  record.planning_seconds = read_number(json, "planning_seconds");
  // Files made before it was kept: about what planning took.
  record.budget_seconds =
      json.contains("budget_seconds") ? read_number(json, "budget_seconds") : record.planning_seconds;
  record.timing_runs = read_integer<std::int64_t>(json, "timing_runs");
  record.scratch_bytes = read_integer<std::int64_t>(json, "scratch_bytes");
  record.notes = json.at("notes").get<std::vector<std::string>>();
  record.made_under = json.at("made_under").get<std::map<std::string, std::string>>();
  record.candidates.clear();
  const nlohmann::json& candidates = json.at("candidates");
  if (!candidates.is_array())
    throw_environment("plan record: 'candidates' should be a list, is {}", candidates.type_name());
  for (const nlohmann::json& candidate : candidates) record.candidates.push_back(read_candidate(candidate));
}

}  // namespace gnomon
