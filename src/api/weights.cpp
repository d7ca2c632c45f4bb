// gnomon_weights_*: see include/gnomon/gnomon.h.
#include <vector>

#include "api/handles.hpp"

using namespace gnomon;
using namespace gnomon::capi;

namespace {

constexpr std::int32_t max_rank = 8;

NamedTensor named_tensor(const gnomon_named_tensor& tensor, std::size_t index) {
  const auto field = [&](const char* name) { return fmt::format("tensors[{}].{}", index, name); };
  NamedTensor result;
  result.name = require(tensor.name, field("name").c_str());
  result.dtype = dtype_of(tensor.dtype, field("dtype").c_str());
  if (tensor.rank < 0 || tensor.rank > max_rank) {
    throw_caller("{} of `{}` is {}; expected 0 to {}", field("rank"), result.name, tensor.rank, max_rank);
  }
  if (tensor.rank > 0) {
    require(tensor.shape, field("shape").c_str());
    result.shape.assign(tensor.shape, tensor.shape + tensor.rank);
  }
  result.data = require(tensor.data, field("data").c_str());
  return result;
}

std::optional<StackConfig> optional_config(const char* config) {
  if (config == nullptr) return std::nullopt;
  return parse_stack_config(config);
}

void give(Weights weights, gnomon_weights** out) { *out = new gnomon_weights{std::move(weights)}; }

}  // namespace

gnomon_status gnomon_weights_from_tensors(const char* config, const gnomon_named_tensor* tensors, size_t count,
                                          gnomon_weights** out) {
  return guarded([&] {
    *require(out, "out") = nullptr;
    const StackConfig structure = parse_stack_config(require(config, "config"));
    if (count > 0) require(tensors, "tensors");
    std::vector<NamedTensor> named;
    named.reserve(count);
    for (std::size_t i = 0; i < count; ++i) named.push_back(named_tensor(tensors[i], i));
    give(Weights::from_tensors(structure, named), out);
  });
}

gnomon_status gnomon_weights_from_safetensors(const char* path, const char* config, gnomon_weights** out) {
  return guarded([&] {
    *require(out, "out") = nullptr;
    give(Weights::from_safetensors(require(path, "path"), optional_config(config)), out);
  });
}

gnomon_status gnomon_weights_random(const char* config, uint64_t seed, gnomon_weights** out) {
  return guarded([&] {
    *require(out, "out") = nullptr;
    give(Weights::random(parse_stack_config(require(config, "config")), seed), out);
  });
}

gnomon_status gnomon_weights_save(const gnomon_weights* weights, const char* path) {
  return guarded([&] { require(weights, "weights")->value.save_safetensors(require(path, "path")); });
}

gnomon_status gnomon_weights_config(const gnomon_weights* weights, char** out) {
  return guarded([&] {
    *require(out, "out") = nullptr;
    *out = copy_text(to_string(require(weights, "weights")->value.config()));
  });
}

void gnomon_weights_destroy(gnomon_weights* weights) { delete weights; }
