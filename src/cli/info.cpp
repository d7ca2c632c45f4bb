// `gnomon info`: the machine, the libraries, the caches and the variables that Gnomon obeys.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/device_facts.hpp"
#include "cli/environment_variables.hpp"
#include "cli/session.hpp"
#include "core/memory.hpp"
#include "cpu/cpu_info.hpp"
#include "plan/plan_store.hpp"

namespace gnomon::cli {
namespace {

using Json = nlohmann::ordered_json;

Json plan_directory() {
  const std::filesystem::path directory = default_plan_directory();
  std::size_t files = 0, bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() != ".json") continue;
    ++files;
    bytes += entry.file_size(error);
  }
  return {{"path", directory.string()}, {"files", files}, {"bytes", bytes}};
}

Json names_of_devices(const Json& cuda) {
  Json names = {"cpu"};
  for (const auto& [name, text] : cuda["devices"].items()) names.push_back(name);
  return names;
}

Json information() {
  const cpu::CpuInfo cpu = cpu::cpu_info();
  const AvailableMemory memory = available_memory();
  const Json on_cuda = cuda_facts();
  Json variables = Json::object();
  for (const EnvironmentVariable& variable : environment_variables) {
    const char* value = std::getenv(variable.name);
    variables[variable.name] = value == nullptr ? Json() : Json(value);
  }
  return {{"gnomon", GNOMON_VERSION},
          {"cpu",
           {{"model", cpu.model},
            {"family", cpu.family},
            {"model_number", cpu.model_number},
            {"cores", cpu.cores},
            {"isa", cpu.isa},
            {"l2_bytes", cpu.l2_bytes},
            {"l3_bytes", cpu.l3_bytes}}},
          {"memory", {{"available_bytes", memory.bytes}, {"limited_by", memory.source}}},
          {"libraries",
           {{"oneDNN", cpu.onednn_version},
            {"Highway", cpu.highway_version},
            {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)}}},
          {"devices", names_of_devices(on_cuda)},
          {"cuda", on_cuda},
          {"plans", plan_directory()},
          {"variables", variables}};
}

std::string text_of(const Json& value) {
  if (value.is_null()) return "(not set)";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void print_text(const Json& info) {
  const Json& cpu = info["cpu"];
  fmt::print("gnomon     {}\n", text_of(info["gnomon"]));
  fmt::print("device     cpu: {}, {} cores, {}\n", text_of(cpu["model"]), text_of(cpu["cores"]), text_of(cpu["isa"]));
  const Json& on_cuda = info["cuda"];
  for (const auto& [name, facts] : on_cuda["devices"].items())
    fmt::print("device     {}: {}\n", name, device_text(facts));
  fmt::print("cuda       {}\n",
             on_cuda.contains("missing") ? text_of(on_cuda["missing"]) : versions_text(on_cuda["libraries"]));
  fmt::print("caches     L2 {}, L3 {}\n", format_bytes(cpu["l2_bytes"].get<double>()),
             format_bytes(cpu["l3_bytes"].get<double>()));
  fmt::print("memory     {} available (by {})\n", format_bytes(info["memory"]["available_bytes"].get<double>()),
             text_of(info["memory"]["limited_by"]));
  fmt::print("libraries  {}\n", versions_text(info["libraries"]));
  const Json& plans = info["plans"];
  fmt::print("plans      {} ({} files, {})\n", plans["path"] == "" ? "kept in memory only" : text_of(plans["path"]),
             text_of(plans["files"]), format_bytes(plans["bytes"].get<double>()));
  fmt::print("variables\n");
  for (const EnvironmentVariable& variable : environment_variables) {
    fmt::print("  {:<21} {:<12} {}\n", variable.name, text_of(info["variables"][variable.name]), variable.meaning);
  }
}

}  // namespace

void add_info(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand("info", "Show the device, the libraries, the caches and the variables");
  add_json_flag(*command, session);
  command->footer("\nExamples:\n  gnomon info\n  gnomon info --json | jq .cpu.isa");
  command->callback([&session] {
    const Json info = information();
    if (session.json) {
      fmt::print("{}\n", info.dump(2));
    } else {
      print_text(info);
    }
  });
}

}  // namespace gnomon::cli
