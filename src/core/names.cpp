#include "core/names.hpp"

#include <algorithm>
#include <map>

#include "core/error.hpp"
#include "core/text_list.hpp"

namespace gnomon {
namespace {

struct Row {
  std::string_view from, to;  // '#' stands for the layer's number
};

struct NameTable {
  std::string_view name;
  std::vector<std::string_view> prefixes;  // each may stand before any name
  std::vector<Row> modules;                // what stands before the last dot
  std::vector<Row> parameters;             // what stands after it
  std::vector<std::string_view> ignored;   // "x*": begins with x; "*x": ends with x
};

const std::vector<NameTable>& tables() {
  static const std::vector<NameTable> all = {
      {.name = "reference",
       .prefixes = {""},
       .modules = {{"layers.#.attn.q_proj", "layers.#.attn.q_proj"},
                   {"layers.#.attn.k_proj", "layers.#.attn.k_proj"},
                   {"layers.#.attn.v_proj", "layers.#.attn.v_proj"},
                   {"layers.#.attn.out_proj", "layers.#.attn.out_proj"},
                   {"layers.#.norm1", "layers.#.norm1"},
                   {"layers.#.norm2", "layers.#.norm2"},
                   {"layers.#.fc1", "layers.#.fc1"},
                   {"layers.#.fc2", "layers.#.fc2"},
                   {"norm", "norm"}},
       .parameters = {{"weight", "weight"}, {"bias", "bias"}},
       .ignored = {}},
      {.name = "bert",
       .prefixes = {"", "bert.", "model."},
       .modules = {{"encoder.layer.#.attention.self.query", "layers.#.attn.q_proj"},
                   {"encoder.layer.#.attention.self.key", "layers.#.attn.k_proj"},
                   {"encoder.layer.#.attention.self.value", "layers.#.attn.v_proj"},
                   {"encoder.layer.#.attention.output.dense", "layers.#.attn.out_proj"},
                   {"encoder.layer.#.attention.output.LayerNorm", "layers.#.norm1"},
                   {"encoder.layer.#.intermediate.dense", "layers.#.fc1"},
                   {"encoder.layer.#.output.dense", "layers.#.fc2"},
                   {"encoder.layer.#.output.LayerNorm", "layers.#.norm2"}},
       // gamma and beta: LayerNorm in files converted from the first releases.
       .parameters = {{"weight", "weight"}, {"bias", "bias"}, {"gamma", "weight"}, {"beta", "bias"}},
       // What stands before and after the stack: the caller embeds, and reads out.
       .ignored = {"embeddings*", "pooler*", "cls.*", "*position_ids"}},
  };
  return all;
}

// The layer's number as written, when `name` fits the pattern; a pattern without '#' gives "".
std::optional<std::string_view> fit(std::string_view pattern, std::string_view name) {
  constexpr std::size_t kDigits = 6;
  const std::size_t hash = pattern.find('#');
  if (hash == std::string_view::npos) return pattern == name ? std::optional<std::string_view>("") : std::nullopt;
  const std::string_view before = pattern.substr(0, hash), after = pattern.substr(hash + 1);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after)) return {};
  const std::string_view number = name.substr(before.size(), name.size() - before.size() - after.size());
  const bool digits = number.find_first_not_of("0123456789") == std::string_view::npos;
  if (!digits || number.size() > kDigits || (number.size() > 1 && number.front() == '0')) return {};
  return number;
}

std::optional<std::string> canonical_of(const NameTable& table, std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const auto parameter = std::find_if(table.parameters.begin(), table.parameters.end(),
                                      [&](const Row& row) { return row.from == name.substr(dot + 1); });
  if (parameter == table.parameters.end()) return {};
  for (const std::string_view prefix : table.prefixes) {
    if (!name.starts_with(prefix) || prefix.size() > dot) continue;
    for (const Row& row : table.modules) {
      const auto number = fit(row.from, name.substr(prefix.size(), dot - prefix.size()));
      if (!number) continue;
      std::string module(row.to);
      if (const std::size_t hash = module.find('#'); hash != std::string::npos) module.replace(hash, 1, *number);
      return fmt::format("{}.{}", module, parameter->to);
    }
  }
  return {};
}

bool is_ignored(const NameTable& table, std::string_view name) {
  for (const std::string_view prefix : table.prefixes) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = name.substr(prefix.size());
    for (const std::string_view pattern : table.ignored) {
      const bool tail = pattern.front() == '*';
      if (tail ? rest.ends_with(pattern.substr(1)) : rest.starts_with(pattern.substr(0, pattern.size() - 1)))
        return true;
    }
  }
  return false;
}

std::string modules_of(const NameTable& table) {
  std::string text;
  for (const Row& row : table.modules) text += fmt::format("{}{}", text.empty() ? "" : ", ", row.from);
  return text;
}

const NameTable& table_for(std::span<const std::string> names) {
  const NameTable* best = nullptr;
  std::ptrdiff_t best_known = 0;
  std::string table_names, examples;
  for (const NameTable& table : tables()) {
    const auto known =
        std::count_if(names.begin(), names.end(), [&](const auto& n) { return canonical_of(table, n).has_value(); });
    if (known > best_known) best = &table, best_known = known;
    table_names += fmt::format("{}{}", table_names.empty() ? "" : ", ", table.name);
    examples += fmt::format("{}{}.weight", examples.empty() ? "" : " or ", table.modules.front().from);
  }
  if (!best) {
    throw_caller(
        "none of the {} tensor names belongs to a model we know ({}); the names are: {}; expected are "
        "names such as {}",
        names.size(), table_names, names.empty() ? "(none)" : some_of(names), examples);
  }
  return *best;
}

}  // namespace

NameMap map_names(std::span<const std::string> names) {
  const NameTable& table = table_for(names);
  NameMap map{.table = table.name, .canonical = {}};
  std::vector<std::string> unknown, twice;
  std::map<std::string, std::string_view> source;
  for (const std::string& name : names) {
    map.canonical.push_back(canonical_of(table, name));
    if (!map.canonical.back()) {
      if (!is_ignored(table, name)) unknown.push_back(name);
      continue;
    }
    const auto [first, is_new] = source.emplace(*map.canonical.back(), name);
    if (!is_new) twice.push_back(fmt::format("{} and {} (both {})", first->second, name, first->first));
  }
  if (!twice.empty()) throw_caller("{} tensors come twice: {}", twice.size(), some_of(twice));
  if (!unknown.empty()) {
    throw_caller("{} tensors are unknown to the name table '{}': {}; it knows the .weight and .bias of {}",
                 unknown.size(), table.name, some_of(unknown), modules_of(table));
  }
  return map;
}

}  // namespace gnomon
