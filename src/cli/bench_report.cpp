#include "cli/bench_report.hpp"

#include <fmt/chrono.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "cli/device_facts.hpp"
#include "cli/table.hpp"
#include "core/memory.hpp"
#include "cpu/cpu_info.hpp"

namespace gnomon::cli {
namespace {

using Json = nlohmann::ordered_json;

// The choices that do something: "off" and "same" are left out, "on" is the name alone.
std::string plan_summary(const RowResult& result) {
  std::string text;
  for (const Choice& choice : result.winner.choices()) {
    if (choice.value == "off" || choice.value == "same") continue;
    text += (text.empty() ? "" : " ") + (choice.value == "on" ? choice.name : choice.name + "=" + choice.value);
  }
  return text;
}

double scratch_share(const BenchRow& row, const RowResult& result) {
  return static_cast<double>(result.scratch_bytes) / activation_bytes(row.problem);
}

double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

std::vector<double> speedups(const BenchReport& report) {
  std::vector<double> values;
  for (const RowResult& result : report.results) {
    if (result.not_run.empty() && result.plain) values.push_back(result.speedup.median);
  }
  return values;
}

std::string overhead_cell(const RowResult& result) {
  if (!result.overhead) return "-";
  return fmt::format("{:.1f}", result.overhead->median * 1e6);
}

std::vector<std::string> cells(const BenchRow& row, const RowResult& result) {
  const double rate = flops_per_second(row, result);
  return {row.id,
          fmt::format("{:.3f}", result.plan.median * 1e3),
          fmt::format("{:.3f}-{:.3f}", result.plan.low * 1e3, result.plan.high * 1e3),
          fmt::format("{:.1f}", rate * 1e-9),
          result.bare_flops > 0 ? fmt::format("{:.0f}%", 100 * rate / result.bare_flops) : "-",
          result.plain ? fmt::format("{:.3f}", result.plain->median * 1e3) : "-",
          result.plain ? fmt::format("{:.2f}", result.speedup.median) : "-",
          fmt::format("{:.3f}", result.verdict.worst),
          std::to_string(result.verdict.out_of_contract),
          fmt::format("{:.1f}", static_cast<double>(result.scratch_bytes) / (1 << 20)),
          fmt::format("{:.0f}%", 100 * scratch_share(row, result)),
          result.from_store ? "stored" : fmt::format("{:.1f}", result.planning_seconds),
          overhead_cell(result)};
}

std::string legend(const BenchReport& report) {
  std::string text;
  const std::vector<double> values = speedups(report);
  if (!values.empty()) {
    text += fmt::format("Geometric mean of {} speed-ups over the reference path: {:.2f}\n", values.size(),
                        geometric_mean(values));
  }
  if (report.cold) text += "Caches were emptied before each timed pass.\n";
  return text + fmt::format(
                    "ms: median and quartiles of the whole call. bare: of the rate of oneDNN's bare fp32 products of "
                    "the same sizes.\n"
                    "plain, x: the reference path timed in pairs with the plan, and the median of the ratios. worst: "
                    "of the contract's\n"
                    "limit; out: elements out of contract. scratch: beyond input, output and weights, and as share of "
                    "the activation.\n"
                    "host us: a pass without its kernels: call, dispatch, barriers; on a device a call without the "
                    "driver's part.\n{:.0f} s of a budget of {:.0f} s.\n",
                    report.seconds, report.budget_seconds);
}

// The same products on an idle machine differ by a few per cent.
std::string load_warning(const BenchReport& report) {
  constexpr double calm = 0.2;
  std::string rows;
  double worst = 0;
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const double spread = report.results[i].bare_spread;
    if (spread <= calm) continue;
    rows += (rows.empty() ? "" : ", ") + report.rows[i].id;
    worst = std::max(worst, spread);
  }
  if (rows.empty()) return "";
  return fmt::format(
      "WARNING: the machine was busy with something else: the bare products' own rate varied by up to {:.0f}% ({}).\n"
      "Shares of it, and times, of these rows are not to be trusted.\n",
      100 * worst, rows);
}

Json json_of(const Quartiles& q) { return {{"low", q.low}, {"median", q.median}, {"high", q.high}}; }
Json json_of(const Interval& i) {
  return {{"low", i.low}, {"median", i.median}, {"high", i.high}, {"coverage", i.coverage}};
}

Json measured(const BenchRow& row, const RowResult& result) {
  const double rate = flops_per_second(row, result);
  return {{"plan", result.winner.to_string()},
          {"approximations", result.approximations},
          {"bound", result.bound},
          {"from_store", result.from_store},
          {"planning_seconds", result.planning_seconds},
          {"seconds", json_of(result.plan)},
          {"samples", result.samples},
          {"flops_per_second", rate},
          {"bare_flops_per_second", result.bare_flops},
          {"bare_spread", result.bare_spread},
          {"of_bare", result.bare_flops > 0 ? Json(rate / result.bare_flops) : Json()},
          {"plain_seconds", result.plain ? json_of(*result.plain) : Json()},
          {"no_plain", result.no_plain},
          {"speedup", result.plain ? json_of(result.speedup) : Json()},
          {"worst", result.verdict.worst},
          {"elements", result.verdict.elements},
          {"out_of_contract", result.verdict.out_of_contract},
          {"fault", result.verdict.fault},
          {"scratch_bytes", result.scratch_bytes},
          {"scratch_of_activation", scratch_share(row, result)},
          {"packed_bytes", result.packed_bytes},
          {"overhead_seconds", result.overhead ? json_of(*result.overhead) : Json()},
          {"host_call_seconds", result.host_call ? json_of(*result.host_call) : Json()}};
}

Json json_of(const FirstCall& call) {
  return {{"engine_seconds", call.engine_seconds},
          {"seconds", call.seconds},
          {"planning_seconds", call.planning_seconds},
          {"cut_short", call.cut_short},
          {"plan", call.plan}};
}

Json json_of(const FirstCalls& calls) {
  return {{"nothing_kept", json_of(calls.nothing_kept)},
          {"kernels_kept", json_of(calls.kernels_kept)},
          {"plans_kept", json_of(calls.plans_kept)},
          {"later_seconds", json_of(calls.later)}};
}

Json json_of(const BenchRow& row, const RowResult& result) {
  Json json = {{"id", row.id}, {"problem", to_string(row.problem)}};
  if (!row.weights.empty()) json["weights"] = row.weights;
  json["not_run"] = result.not_run.empty() ? Json() : Json(result.not_run);
  if (result.not_run.empty()) json.update(result.first_calls ? json_of(*result.first_calls) : measured(row, result));
  return json;
}

std::string first_calls_table(const BenchReport& report) {
  Table table(
      {{"id", false}, {"nothing kept s"}, {"of it planning"}, {"kernels kept s"}, {"plans kept s"}, {"later s"}});
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const RowResult& result = report.results[i];
    if (!result.first_calls) {
      table.add({report.rows[i].id, "not run: " + result.not_run});
      continue;
    }
    const FirstCalls& calls = *result.first_calls;
    table.add({report.rows[i].id, fmt::format("{:.3f}", calls.nothing_kept.seconds),
               fmt::format("{:.3f}{}", calls.nothing_kept.planning_seconds, calls.nothing_kept.cut_short ? "*" : ""),
               fmt::format("{:.3f}", calls.kernels_kept.seconds), fmt::format("{:.3f}", calls.plans_kept.seconds),
               fmt::format("{:.6f}", calls.later.median)});
  }
  return table.text() +
         "Seconds of the first call of an engine, until its answer is there. *: the planning's budget ended first.\n";
}

std::string csv_cell(const Json& value) {
  return value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

std::string bench_table(const BenchReport& report) {
  if (report.first_calls) return first_calls_table(report);
  Table table({{"id", false},
               {"ms"},
               {"quartiles"},
               {"GFLOP/s"},
               {"bare"},
               {"plain ms"},
               {"x"},
               {"worst"},
               {"out"},
               {"scratch MiB"},
               {"share"},
               {"planning s"},
               {"host us"}});
  std::string plans;
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const BenchRow& row = report.rows[i];
    const RowResult& result = report.results[i];
    plans += fmt::format("{:<8} {}\n", row.id, to_string(row.problem));
    if (!result.not_run.empty()) {
      table.add({row.id, "not run: " + result.not_run});
      continue;
    }
    table.add(cells(row, result));
    plans += fmt::format("{:<8}   {}\n", "", plan_summary(result));
    if (!result.approximations.empty())
      plans += fmt::format("{:<8}   approximate: {}\n", "", fmt::join(result.approximations, ", "));
    if (!result.no_plain.empty()) plans += fmt::format("{:<8}   reference path not timed: {}\n", "", result.no_plain);
    if (!result.verdict.fault.empty()) plans += fmt::format("{:<8}   FAILED: {}\n", "", result.verdict.fault);
  }
  return table.text() + legend(report) + load_warning(report) + "\nProblems and plans:\n" + plans;
}

nlohmann::ordered_json bench_json(const BenchReport& report) {
  const cpu::CpuInfo cpu = cpu::cpu_info();
  Json devices = Json::object(), libraries = {{"oneDNN", cpu.onednn_version}, {"Highway", cpu.highway_version}};
  for (const BenchRow& row : report.rows) {
    const std::string& device = row.problem.device;
    if (devices.contains(device)) continue;
    devices[device] = device == "cpu" ? Json{{"name", cpu.model}} : device_facts(device);
    if (device != "cpu") libraries.update(cuda_facts().value("libraries", Json::object()));
  }
  Json json = {{"gnomon", GNOMON_VERSION},
               {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
               {"devices", devices},  // that rows ran on
               {"machine",            // the host
                {{"cpu", cpu.model},
                 {"family", cpu.family},
                 {"model_number", cpu.model_number},
                 {"cores", cpu.cores},
                 {"isa", cpu.isa},
                 {"memory_available_bytes", available_memory().bytes}}},
               {"libraries", libraries},
               {"timing", report.cold ? "cold" : "warm"},
               {"budget_seconds", report.budget_seconds},
               {"seconds", report.seconds}};
  json["notes"] = Json::object();
  for (const auto& [name, value] : report.notes) json["notes"][name] = value;
  json["rows"] = Json::array();
  for (std::size_t i = 0; i < report.rows.size(); ++i)
    json["rows"].push_back(json_of(report.rows[i], report.results[i]));
  const std::vector<double> values = speedups(report);
  json["geometric_mean_speedup"] = values.empty() ? Json() : Json(geometric_mean(values));
  return json;
}

// One line a row; nested values become name.part columns.
std::string bench_csv(const BenchReport& report) {
  std::vector<std::string> header;
  std::vector<Json> flat;
  const Json whole = bench_json(report);
  for (const Json& row : whole["rows"]) {
    Json line = Json::object();
    for (const auto& [name, value] : row.items()) {
      if (!value.is_object()) line[name] = value.is_array() ? Json(value.dump()) : value;
      if (value.is_object()) {
        for (const auto& [part, number] : value.items()) line[name + "." + part] = number;
      }
    }
    for (const auto& [name, value] : line.items()) {
      if (std::find(header.begin(), header.end(), name) == header.end()) header.push_back(name);
    }
    flat.push_back(std::move(line));
  }
  std::string text = csv_line(header);
  for (const Json& line : flat) {
    std::vector<std::string> row_cells;
    for (const std::string& name : header) row_cells.push_back(line.contains(name) ? csv_cell(line[name]) : "");
    text += csv_line(row_cells);
  }
  return text;
}

}  // namespace gnomon::cli
