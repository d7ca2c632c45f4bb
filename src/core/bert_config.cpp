#include "core/bert_config.hpp"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"

namespace gnomon {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<std::string_view, Activation>, 4> kActivations = {
    {{"gelu", Activation::gelu_erf},
     {"gelu_new", Activation::gelu_tanh},
     {"gelu_pytorch_tanh", Activation::gelu_tanh},
     {"relu", Activation::relu}}};

std::int64_t size_field(const json& config, const char* key, const std::string& source) {
  const auto found = config.find(key);
  if (found == config.end())
    throw_caller("{}: '{}' is missing: not the configuration of a BERT-type encoder?", source, key);
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()) {
    throw_caller("{}: '{}' is {}, expected a positive integer", source, key, found->dump());
  }
  return found->get<std::int64_t>();
}

Activation activation_of(const json& config, const std::string& source) {
  const json name = config.value("hidden_act", json("gelu"));
  for (const auto& [known, activation] : kActivations) {
    if (name == known) return activation;
  }
  throw_caller("{}: hidden_act is {}, supported are gelu, gelu_new, gelu_pytorch_tanh, relu", source, name.dump());
}

void expect(const json& config, const char* key, const json& supported, const std::string& source) {
  const json value = config.value(key, supported);
  if (value != supported) throw_caller("{}: {} is {}, supported is {}", source, key, value.dump(), supported.dump());
}

}  // namespace

StackConfig parse_bert_config(std::string_view text, const std::string& source) {
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) throw_environment("{}: is not a JSON object", source);
  expect(config, "position_embedding_type", "absolute", source);
  expect(config, "is_decoder", false, source);
  expect(config, "add_cross_attention", false, source);
  const json eps = config.value("layer_norm_eps", json(1e-12));  // BERT's own default
  if (!eps.is_number()) throw_caller("{}: layer_norm_eps is {}, expected a number", source, eps.dump());
  const StackConfig result{.layers = size_field(config, "num_hidden_layers", source),
                           .d_model = size_field(config, "hidden_size", source),
                           .n_heads = size_field(config, "num_attention_heads", source),
                           .d_ff = size_field(config, "intermediate_size", source),
                           .norm = NormPlacement::post,
                           .final_norm = false,
                           .activation = activation_of(config, source),
                           .causal = false,
                           .bias = true,
                           .eps = eps.get<double>()};
  try {
    check(result);
  } catch (const Error& error) {
    throw_caller("{}: {}", source, error.what());
  }
  return result;
}

StackConfig read_bert_config(const std::filesystem::path& path) {
  const MappedFile file = map_file(path);
  return parse_bert_config({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()}, path.string());
}

}  // namespace gnomon
