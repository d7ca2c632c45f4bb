// The structure of a Transformer stack: all that is known without weights and without an input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gnomon {

enum class NormPlacement : std::uint8_t { post, pre };
enum class Activation : std::uint8_t { gelu_erf, gelu_tanh, relu };

struct StackConfig {
  std::int64_t layers = 3;
  std::int64_t d_model = 128;
  std::int64_t n_heads = 4;
  std::int64_t d_ff = 512;
  NormPlacement norm = NormPlacement::post;
  bool final_norm = false;  // a LayerNorm after the last layer
  Activation activation = Activation::gelu_erf;
  bool causal = true;
  bool bias = true;  // biases of the six projections; LayerNorm's bias is separate
  double eps = 1e-5;

  std::int64_t head_dim() const { return d_model / n_heads; }
  bool operator==(const StackConfig&) const = default;
};

// Refuses (caller error, with values) sizes < 1, d_model not divisible by n_heads, eps <= 0 or not finite,
// and sizes so large that an index would overflow.
void check(const StackConfig& config);

// "d128 h4 l3 f512 causal post gelu [nobias] [finalnorm] [eps=1e-12]": the configuration's part of the grammar.
std::string to_string(const StackConfig& config);
StackConfig parse_stack_config(std::string_view text);

}  // namespace gnomon
