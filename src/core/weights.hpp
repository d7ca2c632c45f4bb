// The weights of a stack as named fp32 views, validated against a StackConfig.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/named_tensor.hpp"
#include "core/stack_config.hpp"

namespace gnomon {

// y = x * weight^T + bias, as torch.nn.Linear: weight is [out, in] row-major.
struct LinearWeights {
  std::int64_t out = 0, in = 0;
  std::span<const float> weight;
  std::span<const float> bias;  // empty: no bias
};

struct NormWeights {
  std::span<const float> weight;
  std::span<const float> bias;  // empty: no bias
};

struct LayerWeights {
  LinearWeights q_proj, k_proj, v_proj, out_proj;  // [d_model, d_model]
  LinearWeights fc1, fc2;                          // [d_ff, d_model], [d_model, d_ff]
  NormWeights norm1, norm2;
};

class Weights {
 public:
  // As PyTorch initialises: nn.Linear uniform in ±1/sqrt(in) (weight and bias), nn.LayerNorm ones and zeros. Same seed, same bits.
  static Weights random(const StackConfig& config, std::uint64_t seed);

  // Views of the caller's fp32 tensors (kept by the caller); other dtypes are converted into owned fp32 copies.
  // Names go through the name tables (core/names.hpp). Unknown names are ignored only when the table says so.
  static Weights from_tensors(const StackConfig& config, std::span<const NamedTensor> tensors,
                              std::shared_ptr<const void> keep_alive = nullptr);

  // Maps the file. Without a config, structure is read from the names and shapes; n_heads, causal, norm, activation and eps
  // cannot be, so `config` then comes from the file's __metadata__["gnomon.config"], a config.json beside it (BERT-type), or is an error.
  static Weights from_safetensors(const std::filesystem::path& path, const std::optional<StackConfig>& config);

  // The reference's state_dict as named tensors, in its order.
  std::vector<NamedTensor> named() const;
  void save_safetensors(const std::filesystem::path& path) const;  // with __metadata__["gnomon.config"]

  const StackConfig& config() const { return config_; }
  std::span<const LayerWeights> layers() const { return layers_; }
  const NormWeights* final_norm() const { return config_.final_norm ? &final_norm_ : nullptr; }
  std::uint64_t fingerprint() const;  // a hash of every value: other weights, other fingerprint

 private:
  StackConfig config_;
  std::vector<LayerWeights> layers_;
  NormWeights final_norm_;
  std::shared_ptr<const void> keep_alive_;
};

}  // namespace gnomon
