#include "core/weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "core/bert_config.hpp"
#include "core/error.hpp"
#include "core/fingerprint.hpp"
#include "core/half.hpp"
#include "core/names.hpp"
#include "core/safetensors.hpp"
#include "core/text_list.hpp"

namespace gnomon {
namespace {

constexpr const char* kConfigKey = "gnomon.config";

// One tensor of the state_dict and the view that holds it.
struct Slot {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float>* view;
  std::int64_t fan_in;  // of the projection; 0: a LayerNorm's
  bool is_weight;

  std::size_t elements() const {
    std::size_t n = 1;
    for (const std::int64_t size : shape) n *= static_cast<std::size_t>(size);
    return n;
  }
  bool is_norm_bias() const { return fan_in == 0 && !is_weight; }
};

void add_linear(const StackConfig& config, const std::string& name, std::int64_t out, std::int64_t in,
                LinearWeights& linear, std::vector<Slot>& slots) {
  linear.out = out;
  linear.in = in;
  slots.push_back({name + ".weight", {out, in}, &linear.weight, in, true});
  if (config.bias) slots.push_back({name + ".bias", {out}, &linear.bias, in, false});
}

void add_norm(const StackConfig& config, const std::string& name, NormWeights& norm, std::vector<Slot>& slots) {
  slots.push_back({name + ".weight", {config.d_model}, &norm.weight, 0, true});
  slots.push_back({name + ".bias", {config.d_model}, &norm.bias, 0, false});
}

// The state_dict in its order: the one place that knows names and shapes.
std::vector<Slot> slots_of(const StackConfig& config, std::vector<LayerWeights>& layers, NormWeights& final_norm) {
  const std::int64_t d = config.d_model, f = config.d_ff;
  layers.resize(static_cast<std::size_t>(config.layers));
  std::vector<Slot> slots;
  for (std::size_t n = 0; n < layers.size(); ++n) {
    const std::string layer = fmt::format("layers.{}.", n);
    LayerWeights& w = layers[n];
    add_linear(config, layer + "attn.q_proj", d, d, w.q_proj, slots);
    add_linear(config, layer + "attn.k_proj", d, d, w.k_proj, slots);
    add_linear(config, layer + "attn.v_proj", d, d, w.v_proj, slots);
    add_linear(config, layer + "attn.out_proj", d, d, w.out_proj, slots);
    add_norm(config, layer + "norm1", w.norm1, slots);
    add_norm(config, layer + "norm2", w.norm2, slots);
    add_linear(config, layer + "fc1", f, d, w.fc1, slots);
    add_linear(config, layer + "fc2", d, f, w.fc2, slots);
  }
  if (config.final_norm) add_norm(config, "norm", final_norm, slots);
  return slots;
}

// Owned fp32 memory whose pieces start on cache lines.
class Arena {
 public:
  float* take(std::size_t elements) {
    constexpr std::align_val_t kLine{64};
    auto* block = static_cast<float*>(::operator new(elements * sizeof(float), kLine, std::nothrow));
    if (!block) throw_environment("no memory for {} bytes of weights", elements * sizeof(float));
    blocks_.emplace_back(block, [](float* p) { ::operator delete(p, kLine); });
    return block;
  }

 private:
  std::vector<std::shared_ptr<float>> blocks_;
};

template <typename Stored, typename Convert>
void widen(const void* from, std::size_t n, float* to, Convert convert) {
  for (std::size_t i = 0; i < n; ++i) {
    Stored value;
    std::memcpy(&value, static_cast<const std::byte*>(from) + i * sizeof(Stored), sizeof(Stored));
    to[i] = convert(value);
  }
}

void convert_to_f32(const NamedTensor& tensor, std::size_t n, float* to) {
  switch (tensor.dtype) {
    case DType::f32:
      std::memcpy(to, tensor.data, n * sizeof(float));
      return;
    case DType::f64:
      return widen<double>(tensor.data, n, to, [](double v) { return static_cast<float>(v); });
    case DType::f16:
      return widen<std::uint16_t>(tensor.data, n, to, f16_to_float);
    case DType::bf16:
      return widen<std::uint16_t>(tensor.data, n, to, bf16_to_float);
  }
  throw_internal("element type {} is unknown", static_cast<int>(tensor.dtype));
}

bool is_viewable(const NamedTensor& tensor) {
  return tensor.dtype == DType::f32 && reinterpret_cast<std::uintptr_t>(tensor.data) % alignof(float) == 0;
}

using ByName = std::map<std::string, const NamedTensor*, std::less<>>;

ByName by_canonical_name(std::span<const NamedTensor> tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors) names.push_back(tensor.name);
  const NameMap map = map_names(names);
  ByName result;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (map.canonical[i]) result.emplace(*map.canonical[i], &tensors[i]);
  }
  return result;
}

bool is_norm_bias(std::string_view canonical) {
  return canonical.ends_with("norm1.bias") || canonical.ends_with("norm2.bias") || canonical == "norm.bias";
}

void check_names(const StackConfig& config, const std::vector<Slot>& slots, const ByName& tensors) {
  std::vector<std::string> missing, unexpected, wrong;
  std::map<std::string_view, const Slot*> wanted;
  for (const Slot& slot : slots) {
    wanted.emplace(slot.name, &slot);
    const auto found = tensors.find(slot.name);
    if (found == tensors.end()) {
      missing.push_back(slot.name);
    } else if (found->second->shape != slot.shape) {
      wrong.push_back(fmt::format("{} expected {}, got {}", found->second->name, shape_text(slot.shape),
                                  shape_text(found->second->shape)));
    } else if (!found->second->data) {
      wrong.push_back(fmt::format("{} has a null address", found->second->name));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (!wanted.contains(name)) unexpected.push_back(tensor->name);
  }
  if (missing.empty() && unexpected.empty() && wrong.empty()) return;
  std::string text = fmt::format("the tensors do not fit '{}'", to_string(config));
  if (!missing.empty()) text += fmt::format("; {} missing: {}", missing.size(), some_of(missing));
  if (!unexpected.empty()) text += fmt::format("; {} not expected: {}", unexpected.size(), some_of(unexpected));
  if (!wrong.empty()) text += fmt::format("; {} of another shape: {}", wrong.size(), some_of(wrong));
  throw_caller("{}", text);
}

// What names and shapes tell; nothing is checked beyond what is read here.
struct Inferred {
  std::int64_t layers = 0, d_model = 0, d_ff = 0;
  bool bias = false, final_norm = false;
};

Inferred infer(const ByName& tensors) {
  Inferred found;
  const auto first_size = [&](std::string_view name) {
    const auto at = tensors.find(name);
    return at == tensors.end() || at->second->shape.empty() ? 0 : at->second->shape[0];
  };
  for (const auto& [name, tensor] : tensors) {
    if (!name.starts_with("layers.")) continue;
    found.layers = std::max<std::int64_t>(found.layers, std::strtoll(name.c_str() + 7, nullptr, 10) + 1);
  }
  found.d_model = first_size("layers.0.attn.q_proj.weight");
  found.d_ff = first_size("layers.0.fc1.weight");
  found.bias = tensors.contains("layers.0.attn.q_proj.bias");
  found.final_norm = tensors.contains("norm.weight");
  return found;
}

// What the name table ignores may be of any type (position_ids are integers); what it wants must be floats.
std::vector<NamedTensor> wanted_tensors(const Safetensors& file) {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : file.tensors()) names.push_back(tensor.name);
  const NameMap map = map_names(names);
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (map.canonical[i]) tensors.push_back(file.as_float(file.tensors()[i]));
  }
  return tensors;
}

StackConfig config_for(const Safetensors& file, const std::filesystem::path& path,
                       std::span<const NamedTensor> tensors) {
  if (const auto entry = file.metadata().find(kConfigKey); entry != file.metadata().end()) {
    return parse_stack_config(entry->second);
  }
  const std::filesystem::path beside = std::filesystem::path(path).replace_filename("config.json");
  if (std::filesystem::exists(beside)) return read_bert_config(beside);
  const Inferred found = infer(by_canonical_name(tensors));
  StackConfig example;  // what the tensors tell; the rest is for the caller to correct
  example.layers = found.layers, example.d_model = found.d_model, example.d_ff = found.d_ff;
  example.bias = found.bias, example.final_norm = found.final_norm;
  throw_caller(
      "{}: the tensors tell l{} d{} f{}{}{}, but not the number of heads, causal or bi, post or pre, the activation "
      "and eps; there is no {} in the file's metadata and no config.json beside it: give the whole configuration "
      "(--config on the command line), such as '{}'",
      path.string(), found.layers, found.d_model, found.d_ff, found.bias ? "" : " nobias",
      found.final_norm ? " finalnorm" : "", kConfigKey, to_string(example));
}

}  // namespace

Weights Weights::random(const StackConfig& config, std::uint64_t seed) {
  check(config);
  Weights weights;
  weights.config_ = config;
  auto arena = std::make_shared<Arena>();
  std::uint64_t tensor = 0;
  for (const Slot& slot : slots_of(config, weights.layers_, weights.final_norm_)) {
    const std::size_t n = slot.elements();
    float* values = arena->take(n);
    if (slot.fan_in == 0) {
      std::fill_n(values, n, slot.is_weight ? 1.0f : 0.0f);
    } else {
      // Counter-based: value i of tensor t is a hash of (seed, t, i), so that it depends on no library's generator.
      const float bound = static_cast<float>(1 / std::sqrt(static_cast<double>(slot.fan_in)));
      const std::uint64_t key = mix64(mix64(seed) + tensor);
      for (std::size_t i = 0; i < n; ++i) {
        const auto bits = static_cast<std::int32_t>(mix64(key + i * 0x9e3779b97f4a7c15u) >> 40);
        values[i] = static_cast<float>(bits - (1 << 23)) * 0x1p-23f * bound;
      }
    }
    *slot.view = {values, n};
    ++tensor;
  }
  weights.keep_alive_ = std::move(arena);
  return weights;
}

Weights Weights::from_tensors(const StackConfig& config, std::span<const NamedTensor> tensors,
                              std::shared_ptr<const void> keep_alive) {
  check(config);
  const ByName by_name = by_canonical_name(tensors);
  Weights weights;
  weights.config_ = config;
  std::vector<Slot> slots = slots_of(config, weights.layers_, weights.final_norm_);
  // LayerNorms without any bias are a kind of model; some without is a broken file.
  if (std::none_of(by_name.begin(), by_name.end(), [](const auto& entry) { return is_norm_bias(entry.first); })) {
    std::erase_if(slots, [](const Slot& slot) { return slot.is_norm_bias(); });
  }
  check_names(config, slots, by_name);
  auto owned = std::make_shared<std::pair<std::shared_ptr<const void>, Arena>>();
  owned->first = std::move(keep_alive);
  for (const Slot& slot : slots) {
    const NamedTensor& tensor = *by_name.find(slot.name)->second;
    if (is_viewable(tensor)) {
      *slot.view = {static_cast<const float*>(tensor.data), slot.elements()};
    } else {
      float* values = owned->second.take(slot.elements());
      convert_to_f32(tensor, slot.elements(), values);
      *slot.view = {values, slot.elements()};
    }
  }
  weights.keep_alive_ = std::move(owned);
  return weights;
}

Weights Weights::from_safetensors(const std::filesystem::path& path, const std::optional<StackConfig>& config) {
  const Safetensors file = Safetensors::open(path);
  try {
    const std::vector<NamedTensor> tensors = wanted_tensors(file);
    return from_tensors(config ? *config : config_for(file, path, tensors), tensors, file.storage());
  } catch (const Error& error) {
    const std::string text = error.what();
    if (text.starts_with(path.string())) throw;
    throw Error(error.kind(), fmt::format("{}: {}", path.string(), text));
  }
}

std::vector<NamedTensor> Weights::named() const {
  Weights views = *this;  // slots point into what they are made of
  std::vector<NamedTensor> result;
  for (const Slot& slot : slots_of(views.config_, views.layers_, views.final_norm_)) {
    if (!slot.view->empty()) result.push_back({slot.name, DType::f32, slot.shape, slot.view->data()});
  }
  return result;
}

void Weights::save_safetensors(const std::filesystem::path& path) const {
  write_safetensors(path, named(), {{kConfigKey, to_string(config_)}});
}

std::uint64_t Weights::fingerprint() const {
  std::uint64_t hash = 0;
  for (const NamedTensor& tensor : named()) {
    std::size_t bytes = sizeof(float);
    for (const std::int64_t size : tensor.shape) bytes *= static_cast<std::size_t>(size);
    hash = hash_bytes(tensor.data, bytes, hash_bytes(tensor.name.data(), tensor.name.size(), hash));
  }
  return hash;
}

}  // namespace gnomon
