#include "core/bert_config.hpp"

#include <nlohmann/json.hpp>

#include "core/expect_error.hpp"

namespace gnomon {
namespace {

using nlohmann::json;

json plain() {
  return {{"hidden_size", 384},     {"num_attention_heads", 12}, {"intermediate_size", 1536},
          {"num_hidden_layers", 6}, {"hidden_act", "gelu"},      {"layer_norm_eps", 1e-12}};
}

TEST(BertConfig, IsAPostNormBidirectionalStack) {
  const StackConfig config = parse_bert_config(plain().dump(), "config.json");
  EXPECT_EQ(to_string(config), "d384 h12 l6 f1536 bi post gelu eps=1e-12");
}

TEST(BertConfig, Activations) {
  const std::pair<const char*, Activation> rows[] = {{"gelu", Activation::gelu_erf},
                                                     {"gelu_new", Activation::gelu_tanh},
                                                     {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                     {"relu", Activation::relu}};
  for (const auto& [name, activation] : rows) {
    json config = plain();
    config["hidden_act"] = name;
    EXPECT_EQ(parse_bert_config(config.dump(), "c").activation, activation) << name;
  }
}

TEST(BertConfig, WhatTheStackCannotDoIsRefusedWithTheValue) {
  const struct {
    const char* key;
    json value;
    const char* says;
  } rows[] = {
      {"hidden_act", "swish", "c: hidden_act is \"swish\", supported are gelu, gelu_new, gelu_pytorch_tanh, relu"},
      {"hidden_act", 3, "hidden_act is 3"},
      {"position_embedding_type", "relative_key",
       "position_embedding_type is \"relative_key\", supported is \"absolute\""},
      {"is_decoder", true, "is_decoder is true"},
      {"add_cross_attention", true, "add_cross_attention is true"},
      {"layer_norm_eps", "x", "layer_norm_eps is \"x\""},
      {"layer_norm_eps", 0, "eps is 0"},
      {"hidden_size", -1, "'hidden_size' is -1"},
      {"hidden_size", 1e3, "'hidden_size' is 1000.0"},
      {"num_hidden_layers", 1ull << 40, "'num_hidden_layers' is 1099511627776"},
      {"num_attention_heads", 7, "c: stack configuration: d_model 384 is not divisible by n_heads 7"},
  };
  for (const auto& row : rows) {
    json config = plain();
    config[row.key] = row.value;
    expect_error(ErrorKind::caller, row.says, [&] { parse_bert_config(config.dump(), "c"); });
  }
  json config = plain();
  config.erase("intermediate_size");
  expect_error(ErrorKind::caller, "'intermediate_size' is missing", [&] { parse_bert_config(config.dump(), "c"); });
  expect_error(ErrorKind::environment, "is not a JSON object", [] { parse_bert_config("{", "c"); });
}

}  // namespace
}  // namespace gnomon
