#include "core/weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "core/expect_error.hpp"
#include "core/files.hpp"
#include "core/half.hpp"
#include "core/safetensors.hpp"

namespace gnomon {
namespace {

using test::TemporaryDirectory;

const StackConfig kSmall{.layers = 2, .d_model = 8, .n_heads = 2, .d_ff = 12};

StackConfig with(StackConfig config, bool bias, bool final_norm) {
  config.bias = bias;
  config.final_norm = final_norm;
  return config;
}

bool same_values(const Weights& a, const Weights& b) {
  const auto x = a.named(), y = b.named();
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const NamedTensor& s, const NamedTensor& t) {
    std::size_t n = 1;
    for (const std::int64_t size : s.shape) n *= static_cast<std::size_t>(size);
    return s.name == t.name && s.shape == t.shape && std::memcmp(s.data, t.data, n * sizeof(float)) == 0;
  });
}

TEST(RandomWeights, AreWhatPyTorchsInitialisationIsLike) {
  const Weights w = Weights::random({.layers = 1, .d_model = 64, .n_heads = 1, .d_ff = 256}, 1);
  const auto uniform = [](std::span<const float> values, double bound) {
    double sum = 0, squares = 0, largest = 0;
    for (const double v : values) sum += v, squares += v * v, largest = std::max(largest, std::fabs(v));
    const auto n = static_cast<double>(values.size());
    EXPECT_LE(largest, bound);
    EXPECT_GT(largest, bound * 0.9);
    EXPECT_NEAR(sum / n, 0, 5 * bound / std::sqrt(3 * n));
    EXPECT_NEAR(squares / n, bound * bound / 3, bound * bound * 2 / std::sqrt(n));
  };
  const LayerWeights& layer = w.layers()[0];
  for (const LinearWeights* linear :
       {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.out_proj, &layer.fc1, &layer.fc2}) {
    uniform(linear->weight, 1 / std::sqrt(static_cast<double>(linear->in)));
    uniform(linear->bias, 1 / std::sqrt(static_cast<double>(linear->in)));
    EXPECT_EQ(linear->weight.size(), static_cast<std::size_t>(linear->in * linear->out));
    EXPECT_EQ(linear->bias.size(), static_cast<std::size_t>(linear->out));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(linear->weight.data()) % 64, 0u);
  }
  EXPECT_EQ(layer.fc1.out, 256);
  EXPECT_EQ(layer.fc2.in, 256);
  EXPECT_THAT(layer.norm1.weight, testing::Each(1.0f));
  EXPECT_THAT(layer.norm2.bias, testing::Each(0.0f));
}

TEST(RandomWeights, HaveTheSameBitsEverywhere) {
  const Weights w = Weights::random(kSmall, 42);
  EXPECT_EQ(w.fingerprint(), Weights::random(kSmall, 42).fingerprint());
  EXPECT_NE(w.fingerprint(), Weights::random(kSmall, 43).fingerprint());
  // Written down once: a change of generator would make recorded results another model's.
  EXPECT_EQ(w.fingerprint(), 12157873145235351341u);
}

TEST(Weights, NamesAreTheReferencesStateDict) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : Weights::random(with(kSmall, true, true), 0).named()) names.push_back(tensor.name);
  EXPECT_EQ(names.size(), 2u * 16 + 2);
  EXPECT_EQ(names[0], "layers.0.attn.q_proj.weight");
  EXPECT_EQ(names[1], "layers.0.attn.q_proj.bias");
  EXPECT_EQ(names[15], "layers.0.fc2.bias");
  EXPECT_EQ(names.back(), "norm.bias");
  EXPECT_EQ(Weights::random(with(kSmall, false, false), 0).named().size(), 2u * 10);
}

TEST(Weights, TakeViewsOfFloatsAndCopiesOfTheRest) {
  const Weights source = Weights::random(with(kSmall, true, true), 5);
  std::vector<NamedTensor> tensors = source.named();
  std::reverse(tensors.begin(), tensors.end());
  const Weights views = Weights::from_tensors(source.config(), tensors);
  EXPECT_TRUE(same_values(views, source));
  EXPECT_EQ(views.layers()[1].fc1.weight.data(), source.layers()[1].fc1.weight.data());
  EXPECT_EQ(views.final_norm()->weight.data(), source.final_norm()->weight.data());
  EXPECT_EQ(views.fingerprint(), source.fingerprint());

  // Values that every type holds exactly, at an odd address.
  std::vector<std::vector<std::byte>> storage;
  const DType types[] = {DType::f16, DType::bf16, DType::f64, DType::f32};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto n =
        static_cast<std::size_t>(tensors[i].shape[0] * (tensors[i].shape.size() > 1 ? tensors[i].shape[1] : 1));
    const DType type = types[i % 4];
    storage.emplace_back(1 + n * size_of(type));
    for (std::size_t k = 0; k < n; ++k) {
      const float value = static_cast<float>(k % 7) - 3;
      const double wide = value;
      const std::uint16_t half = type == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
      const void* from = type == DType::f64   ? static_cast<const void*>(&wide)
                         : type == DType::f32 ? static_cast<const void*>(&value)
                                              : &half;
      std::memcpy(storage.back().data() + 1 + k * size_of(type), from, size_of(type));
    }
    tensors[i].dtype = type;
    tensors[i].data = storage.back().data() + 1;
  }
  const Weights converted = Weights::from_tensors(source.config(), tensors);
  storage.clear();
  for (const NamedTensor& tensor : converted.named()) {
    EXPECT_EQ(static_cast<const float*>(tensor.data)[0], -3) << tensor.name;
    EXPECT_EQ(static_cast<const float*>(tensor.data)[7], -3) << tensor.name;
    EXPECT_EQ(static_cast<const float*>(tensor.data)[2], -1) << tensor.name;
  }
}

TEST(Weights, KeepWhatTheyViewAlive) {
  auto owner = std::make_shared<Weights>(Weights::random(kSmall, 5));
  const std::weak_ptr<Weights> watch = owner;
  {
    const Weights views = Weights::from_tensors(kSmall, owner->named(), owner);
    owner.reset();
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

TEST(Weights, EveryElementIsInTheFingerprint) {
  const Weights source = Weights::random(kSmall, 5);
  for (const NamedTensor& tensor : source.named()) {
    auto* value = const_cast<float*>(static_cast<const float*>(tensor.data));
    const float before = *value;
    const std::uint64_t fingerprint = source.fingerprint();
    *value = std::nextafter(before, 2.0f);
    EXPECT_NE(source.fingerprint(), fingerprint) << tensor.name;
    *value = before;
    EXPECT_EQ(source.fingerprint(), fingerprint) << tensor.name;
  }
}

TEST(Weights, TensorsThatDoNotFitAreListed) {
  const Weights source = Weights::random(kSmall, 5);
  const auto refused = [&](const StackConfig& config, const std::string& says, auto&& change) {
    std::vector<NamedTensor> tensors = source.named();
    change(tensors);
    expect_error(ErrorKind::caller, says, [&] { Weights::from_tensors(config, tensors); });
  };
  const auto nothing = [](auto&) {};
  refused(kSmall, "1 missing: layers.0.attn.q_proj.weight", [](auto& t) { t.erase(t.begin()); });
  refused(kSmall, "1 missing: layers.0.norm1.bias", [](auto& t) { t.erase(t.begin() + 9); });
  refused(kSmall, "layers.0.attn.q_proj.weight expected [8, 8], got [64]", [](auto& t) { t[0].shape = {64}; });
  refused(kSmall, "layers.0.attn.q_proj.weight has a null address", [](auto& t) { t[0].data = nullptr; });
  refused(kSmall, "layers.0.attn.q_proj.weight and layers.0.attn.q_proj.weight", [](auto& t) { t.push_back(t[0]); });
  refused(with(kSmall, false, false), "12 not expected: layers.0.attn.k_proj.bias", nothing);
  refused(with(kSmall, true, true), "2 missing: norm.weight, norm.bias", nothing);
  StackConfig other = kSmall;
  other.layers = 3;
  refused(other, "the tensors do not fit 'd8 h2 l3 f12 causal post gelu'; 16 missing: layers.2.attn.q_proj.weight",
          nothing);
  other.layers = 1;
  refused(other, "16 not expected: layers.1.", nothing);
}

TEST(Weights, LayerNormsMayAllBeWithoutBias) {
  const Weights source = Weights::random(kSmall, 5);
  std::vector<NamedTensor> tensors = source.named();
  std::erase_if(tensors, [](const NamedTensor& t) {
    return t.name.find("norm") != std::string::npos && t.name.ends_with("bias");
  });
  const Weights w = Weights::from_tensors(kSmall, tensors);
  EXPECT_TRUE(w.layers()[0].norm1.bias.empty());
  EXPECT_EQ(w.named().size(), tensors.size());
}

TEST(WeightsFile, CarriesItsConfiguration) {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "w.safetensors";
  StackConfig config = with(kSmall, false, true);
  config.eps = 1e-12;
  config.activation = Activation::relu;
  const Weights saved = Weights::random(config, 9);
  saved.save_safetensors(path);
  const Weights loaded = Weights::from_safetensors(path, std::nullopt);
  EXPECT_EQ(loaded.config(), config);
  EXPECT_TRUE(same_values(loaded, saved));
  StackConfig other = config;
  other.d_ff = 13;
  expect_error(ErrorKind::caller, "w.safetensors: the tensors do not fit",
               [&] { Weights::from_safetensors(path, other); });
}

TEST(WeightsFile, WithoutAConfigurationSaysWhatItSawAndWhatIsMissing) {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "w.safetensors";
  write_safetensors(path, Weights::random(with(kSmall, false, true), 9).named(), {});
  expect_error(ErrorKind::caller, "the tensors tell l2 d8 f12 nobias finalnorm, but not the number of heads",
               [&] { Weights::from_safetensors(path, std::nullopt); });
  expect_error(ErrorKind::caller, "such as 'd8 h4 l2 f12 causal post gelu nobias finalnorm'",
               [&] { Weights::from_safetensors(path, std::nullopt); });
  EXPECT_EQ(Weights::from_safetensors(path, with(kSmall, false, true)).config().d_ff, 12);
  write_safetensors(path, Weights::random(kSmall, 9).named(), {{"gnomon.config", "d8 hx"}});
  expect_error(ErrorKind::caller, "w.safetensors: stack configuration: word 2 'hx'",
               [&] { Weights::from_safetensors(path, std::nullopt); });
}

// A BERT-type file as published, made from our own weights.
void write_bert(const std::filesystem::path& path, const Weights& w) {
  std::vector<NamedTensor> tensors;
  const std::pair<const char*, const char*> modules[] = {
      {"attn.q_proj", "attention.self.query"}, {"attn.k_proj", "attention.self.key"},
      {"attn.v_proj", "attention.self.value"}, {"attn.out_proj", "attention.output.dense"},
      {"norm1", "attention.output.LayerNorm"}, {"norm2", "output.LayerNorm"},
      {"fc1", "intermediate.dense"},           {"fc2", "output.dense"}};
  for (NamedTensor tensor : w.named()) {
    for (const auto& [ours, theirs] : modules) {
      const std::size_t at = tensor.name.find(ours);
      if (at == std::string::npos) continue;
      tensor.name =
          "bert.encoder.layer" + tensor.name.substr(6, at - 6) + theirs + tensor.name.substr(at + std::strlen(ours));
      break;
    }
    tensors.push_back(tensor);
  }
  const float embedding = 0;
  tensors.push_back({"bert.embeddings.word_embeddings.weight", DType::f32, {1, 1}, &embedding});
  write_safetensors(path, tensors, {{"format", "pt"}});
}

TEST(WeightsFile, OfABertTypeIsReadWithItsConfigJson) {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "model.safetensors";
  const Weights source = Weights::random(kSmall, 3);
  write_bert(path, source);
  test::write_file(
      folder.path() / "config.json",
      R"({"hidden_size":8,"num_attention_heads":4,"intermediate_size":12,"num_hidden_layers":2,"hidden_act":"gelu_new"})");
  const Weights loaded = Weights::from_safetensors(path, std::nullopt);
  EXPECT_EQ(to_string(loaded.config()), "d8 h4 l2 f12 bi post gelu_tanh eps=1e-12");
  EXPECT_TRUE(same_values(loaded, source));
}

TEST(WeightsFile, AWantedTensorOfIntegersIsNamed) {
  const TemporaryDirectory folder;
  const std::string header = R"({"layers.0.fc1.weight":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})";
  const auto path = test::write_file(folder.path() / "w.safetensors", std::string(1, static_cast<char>(header.size())) +
                                                                          std::string(7, '\0') + header + "1234");
  expect_error(ErrorKind::caller, "tensor 'layers.0.fc1.weight' is I32",
               [&] { Weights::from_safetensors(path, kSmall); });
}

}  // namespace
}  // namespace gnomon
