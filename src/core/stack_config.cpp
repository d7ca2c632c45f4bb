#include "core/stack_config.hpp"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "core/grammar.hpp"

namespace gnomon {
namespace {

// "f16" and "f32" are element types in a Problem's line, so a d_ff of 16 or 32 is written "ff16" or "ff32".
bool reads_as_dtype(std::int64_t d_ff) { return d_ff == 16 || d_ff == 32; }

constexpr std::string_view kWhat = "stack configuration";

grammar::Rule d_ff_rule(std::int64_t& d_ff) {
  const grammar::Rule shorter = grammar::integer("f", d_ff);
  const grammar::Rule longer = grammar::integer("ff", d_ff);
  return {"f<n>|ff<n>", [=](std::string_view word) {
            if (word == "f16" || word == "f32") return false;
            return longer.take(word) || shorter.take(word);
          }};
}

std::string_view word_of(Activation activation) {
  switch (activation) {
    case Activation::gelu_erf:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::relu:
      return "relu";
  }
  throw_internal("activation {} has no word", static_cast<int>(activation));
}

}  // namespace

namespace grammar {

std::vector<Rule> stack_config_rules(StackConfig& config) {
  return {integer("d", config.d_model),
          integer("h", config.n_heads),
          integer("l", config.layers),
          d_ff_rule(config.d_ff),
          choice<bool>({{"causal", true}, {"bi", false}}, config.causal),
          choice<NormPlacement>({{"post", NormPlacement::post}, {"pre", NormPlacement::pre}}, config.norm),
          choice<Activation>(
              {{"gelu", Activation::gelu_erf}, {"gelu_tanh", Activation::gelu_tanh}, {"relu", Activation::relu}},
              config.activation),
          flag("nobias", config.bias, false),
          flag("finalnorm", config.final_norm, true),
          real("eps", config.eps)};
}

}  // namespace grammar

void check(const StackConfig& config) {
  const std::initializer_list<std::pair<std::string_view, std::int64_t>> sizes = {
      {"layers", config.layers}, {"d_model", config.d_model}, {"n_heads", config.n_heads}, {"d_ff", config.d_ff}};
  for (const auto& [name, size] : sizes) {
    // 2^31 keeps every product of two sizes, in bytes, inside 64 bits with room for the sums below.
    if (size < 1 || size > (std::int64_t{1} << 31)) {
      throw_caller("{}: {} is {}, allowed is 1 to 2^31", kWhat, name, size);
    }
  }
  if (config.d_model % config.n_heads != 0) {
    throw_caller("{}: d_model {} is not divisible by n_heads {}", kWhat, config.d_model, config.n_heads);
  }
  // LayerNorm adds it in fp32: a subnormal one would be 0 there, and 1/sqrt(0 + 0) infinite.
  constexpr double least = std::numeric_limits<float>::min(), most = std::numeric_limits<float>::max();
  if (!(config.eps >= least && config.eps <= most)) {
    throw_caller("{}: eps is {}, it must be a normal fp32 number, {:.8g} to {:.8g}", kWhat, config.eps, least, most);
  }
  const double d = static_cast<double>(config.d_model), f = static_cast<double>(config.d_ff);
  const double bytes = static_cast<double>(config.layers) * (4 * d * d + 2 * d * f + 9 * d + f) * sizeof(double);
  if (bytes > static_cast<double>(std::numeric_limits<std::int64_t>::max() / 2)) {
    throw_caller("{}: layers {}, d_model {}, d_ff {} give {:.3g} bytes of weights, more than can be addressed", kWhat,
                 config.layers, config.d_model, config.d_ff, bytes);
  }
}

std::string to_string(const StackConfig& config) {
  std::string text = fmt::format("d{} h{} l{} {}{} {} {} {}", config.d_model, config.n_heads, config.layers,
                                 reads_as_dtype(config.d_ff) ? "ff" : "f", config.d_ff, config.causal ? "causal" : "bi",
                                 config.norm == NormPlacement::post ? "post" : "pre", word_of(config.activation));
  if (!config.bias) text += " nobias";
  if (config.final_norm) text += " finalnorm";
  if (config.eps != StackConfig{}.eps) text += fmt::format(" eps={}", config.eps);
  return text;
}

StackConfig parse_stack_config(std::string_view text) {
  StackConfig config;
  auto rules = grammar::stack_config_rules(config);
  rules.push_back({"", [](std::string_view word) -> bool {
                     if (word != "f16" && word != "f32") return false;
                     throw_caller("it names an element type, which has no place here; a d_ff of {} is written f{}",
                                  word.substr(1), word);
                   }});
  grammar::parse(text, kWhat, rules);
  check(config);
  return config;
}

}  // namespace gnomon
