#include "cli/bench_rows.hpp"

#include <nlohmann/json.hpp>

#include "cli/engine_flags.hpp"
#include "core/error.hpp"

namespace gnomon::cli {
namespace {

Problem suite_problem(const nlohmann::json& shape, const Contract& contract) {
  Problem problem;
  problem.batch = shape.at("B").get<std::int64_t>();
  problem.seq = shape.at("S").get<std::int64_t>();
  problem.config.d_model = shape.at("d_model").get<std::int64_t>();
  problem.config.n_heads = shape.at("n_heads").get<std::int64_t>();
  problem.config.layers = shape.at("n_layers").get<std::int64_t>();
  problem.config.d_ff = shape.at("d_ff").get<std::int64_t>();
  problem.contract = contract;
  check(problem);
  return problem;
}

}  // namespace

std::vector<BenchRow> suite_rows(const std::string& text, const std::string& source) {
  try {
    const nlohmann::json suite = nlohmann::json::parse(text);
    Contract contract;
    if (const auto given = suite.find("contract"); given != suite.end()) {
      contract.abs = given->value("abs", contract.abs);
      contract.rel = given->value("rel", contract.rel);
    }
    std::vector<BenchRow> rows;
    for (const nlohmann::json& shape : suite.at("shapes")) {
      rows.push_back({fmt::format("#{}", shape.at("id").get<std::int64_t>()), suite_problem(shape, contract), ""});
    }
    return rows;
  } catch (const nlohmann::json::exception& error) {
    throw_caller(
        "{} is no suite file (\"shapes\": [{{\"id\", \"B\", \"S\", \"d_model\", \"n_heads\", \"n_layers\", "
        "\"d_ff\"}}]): {}",
        source, error.what());
  }
}

BenchRow problem_row(const std::string& text) { return {"", parse_problem_argument(text), ""}; }

BenchRow model_row(const std::string& argument, const std::string& shape) {
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == argument.size()) {
    throw_caller("--model takes NAME=PATH, as MiniLM=model.safetensors; got `{}`", argument);
  }
  BenchRow row{argument.substr(0, equals), parse_problem_argument(shape), argument.substr(equals + 1)};
  row.problem.config = Weights::from_safetensors(row.weights, std::nullopt).config();
  return row;
}

double flops_per_second(const BenchRow& row, const RowResult& result) {
  return flops(row.problem) / result.plan.median;
}

double activation_bytes(const Problem& problem) {
  return static_cast<double>(problem.elements()) * static_cast<double>(size_of(problem.dtype));
}

}  // namespace gnomon::cli
