#include "core/names.hpp"

#include "core/expect_error.hpp"

namespace gnomon {
namespace {

NameMap map(const std::vector<std::string>& names) { return map_names(names); }

TEST(Names, EveryRowOfEveryTable) {
  const struct {
    const char *table, *name, *canonical;
  } rows[] = {
      {"reference", "layers.0.attn.q_proj.weight", "layers.0.attn.q_proj.weight"},
      {"reference", "layers.12.attn.k_proj.bias", "layers.12.attn.k_proj.bias"},
      {"reference", "layers.1.attn.v_proj.bias", "layers.1.attn.v_proj.bias"},
      {"reference", "layers.1.attn.out_proj.weight", "layers.1.attn.out_proj.weight"},
      {"reference", "layers.1.norm1.weight", "layers.1.norm1.weight"},
      {"reference", "layers.1.norm2.bias", "layers.1.norm2.bias"},
      {"reference", "layers.1.fc1.weight", "layers.1.fc1.weight"},
      {"reference", "layers.1.fc2.bias", "layers.1.fc2.bias"},
      {"reference", "norm.weight", "norm.weight"},
      {"bert", "encoder.layer.3.attention.self.query.weight", "layers.3.attn.q_proj.weight"},
      {"bert", "bert.encoder.layer.3.attention.self.key.bias", "layers.3.attn.k_proj.bias"},
      {"bert", "model.encoder.layer.3.attention.self.value.bias", "layers.3.attn.v_proj.bias"},
      {"bert", "encoder.layer.3.attention.output.dense.weight", "layers.3.attn.out_proj.weight"},
      {"bert", "encoder.layer.3.attention.output.LayerNorm.weight", "layers.3.norm1.weight"},
      {"bert", "encoder.layer.3.attention.output.LayerNorm.gamma", "layers.3.norm1.weight"},
      {"bert", "encoder.layer.3.intermediate.dense.bias", "layers.3.fc1.bias"},
      {"bert", "encoder.layer.3.output.dense.weight", "layers.3.fc2.weight"},
      {"bert", "encoder.layer.3.output.LayerNorm.beta", "layers.3.norm2.bias"},
  };
  for (const auto& row : rows) {
    const NameMap found = map({row.name});
    EXPECT_EQ(found.table, row.table) << row.name;
    EXPECT_EQ(found.canonical.at(0), row.canonical) << row.name;
  }
}

TEST(Names, WhatATableIgnores) {
  const NameMap found =
      map({"encoder.layer.0.output.dense.weight", "embeddings.word_embeddings.weight", "bert.embeddings.position_ids",
           "pooler.dense.bias", "cls.predictions.bias", "bert.pooler.dense.weight"});
  for (std::size_t i = 1; i < found.canonical.size(); ++i) EXPECT_FALSE(found.canonical[i]) << i;
}

TEST(Names, WhatNoTableKnowsIsRefused) {
  const struct {
    std::vector<std::string> names;
    const char* says;
  } rows[] = {
      {{}, "none of the 0 tensor names belongs to a model we know (reference, bert)"},
      {{"wte.weight", "h.0.ln"}, "wte.weight, h.0.ln; expected are names such as layers.#.attn.q_proj.weight or encoder."},
      {{"layers.0.fc1.weight", "layers.0.fc3.weight"},
       "1 tensors are unknown to the name table 'reference': layers.0.fc3.weight; it knows the .weight and .bias of "
       "layers.#.attn.q_proj, layers.#.attn.k_proj"},
      {{"layers.0.fc1.weight", "layers.x.fc1.weight"}, "layers.x.fc1.weight"},
      {{"layers.0.fc1.weight", "layers.00.fc1.weight"}, "layers.00.fc1.weight"},
      {{"layers.0.fc1.weight", "layers..fc1.weight"}, "layers..fc1.weight"},
      {{"layers.0.fc1.weight", "a", "b", "c", "d", "e", "f", "g"},
       "7 tensors are unknown to the name table 'reference': a, b, c, d, e and 2 more"},
      {{"encoder.layer.0.output.LayerNorm.gamma", "encoder.layer.0.output.LayerNorm.weight"},
       "encoder.layer.0.output.LayerNorm.gamma and encoder.layer.0.output.LayerNorm.weight (both "
       "layers.0.norm2.weight)"},
      {{"encoder.layer.0.crossattention.self.query.weight", "encoder.layer.0.output.dense.bias"}, "crossattention"},
  };
  for (const auto& row : rows) expect_error(ErrorKind::caller, row.says, [&] { map(row.names); });
}

}  // namespace
}  // namespace gnomon
