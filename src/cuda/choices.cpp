#include "cuda/choices.hpp"

#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <string>

#include "core/error.hpp"

namespace gnomon::cuda {
namespace {

constexpr std::array kPaths = {"plain", "stack", "resident"};
constexpr std::array kPrecisions = {"fp32", "tf32", "fp16", "bf16"};
constexpr std::array kSwitch = {"off", "on"};

// An enumeration or a switch by its names, which are in the order of its values.
template <typename T, std::size_t N>
struct Named {
  T Choices::*member;
  const std::array<const char*, N>& names;

  std::string get(const Choices& c) const { return names[static_cast<std::size_t>(c.*member)]; }
  void set(Choices& c, const Choice& choice) const {
    std::string allowed;
    for (std::size_t i = 0; i < N; ++i) {
      if (choice.value == names[i]) return void(c.*member = static_cast<T>(i));
      allowed += (i ? ", " : "") + std::string(names[i]);
    }
    throw_caller("{}: expected one of {}, got '{}'", choice.name, allowed, choice.value);
  }
};

template <typename T>
struct Number {
  T Choices::*member;
  T least, most;
  const char* zero = nullptr;  // the word for 0

  std::string get(const Choices& c) const { return zero && c.*member == 0 ? zero : std::to_string(c.*member); }
  void set(Choices& c, const Choice& choice) const {
    if (zero && choice.value == zero) return void(c.*member = 0);
    T value{};
    const char* const end = choice.value.data() + choice.value.size();
    const auto [stop, error] = std::from_chars(choice.value.data(), end, value);
    if (error != std::errc() || stop != end || value < least || value > most) {
      throw_caller("{}: expected a number from {} to {}{}{}{}, got '{}'", choice.name, least, most, zero ? " or '" : "",
                   zero ? zero : "", zero ? "'" : "", choice.value);
    }
    c.*member = value;
  }
};

// The FFN's precision, said only where it is another.
struct OtherPrecision {
  std::string get(const Choices& c) const { return c.ffn_precision ? name_of(*c.ffn_precision) : "same"; }
  void set(Choices& c, const Choice& choice) const {
    c.ffn_precision.reset();
    for (std::size_t i = 0; i < kPrecisions.size(); ++i)
      if (choice.value == kPrecisions[i]) c.ffn_precision = static_cast<Precision>(i);
    if (!c.ffn_precision && choice.value != "same")
      throw_caller("{}: expected one of same, {}, got '{}'", choice.name, fmt::join(kPrecisions, ", "), choice.value);
  }
};

// A name that is looked into where it is used.
struct Word {
  std::string Choices::*member;
  std::string get(const Choices& c) const { return c.*member; }
  void set(Choices& c, const Choice& choice) const { c.*member = choice.value; }
};

// visit(name, field) for every choice, in the order in which candidates print them.
template <typename Visit>
void each_field(Visit&& visit) {
  const auto switched = [&](const char* name, bool Choices::*member) { visit(name, Named<bool, 2>{member, kSwitch}); };
  const auto algorithm = [&](const char* name, int Choices::*member) {
    visit(name, Number<int>{member, 0, kMostAlgorithms - 1});
  };
  visit("path", Named<Path, 3>{&Choices::path, kPaths});
  visit("precision", Named<Precision, 4>{&Choices::precision, kPrecisions});
  visit("ffn_precision", OtherPrecision{});
  switched("fused_attention", &Choices::fused_attention);
  visit("tile", Word{&Choices::tile});
  switched("causal_skip", &Choices::causal_skip);
  switched("mask_elision", &Choices::mask_elision);
  switched("fused_qkv", &Choices::fused_qkv);
  switched("fused_norm", &Choices::fused_norm);
  switched("gemm_gelu", &Choices::gemm_gelu);
  switched("packed_residual", &Choices::packed_residual);
  switched("graph", &Choices::graph);
  algorithm("algo_qkv", &Choices::algo_qkv);
  algorithm("algo_out", &Choices::algo_out);
  algorithm("algo_fc1", &Choices::algo_fc1);
  algorithm("algo_fc2", &Choices::algo_fc2);
  switched("compact", &Choices::compact);
  visit("slices", Number<std::int64_t>{&Choices::slices, 1, std::int64_t{1} << 62, "all"});
}

}  // namespace

const char* name_of(Precision precision) { return kPrecisions[static_cast<std::size_t>(precision)]; }

Choices parse_choices(const Candidate& candidate) {
  Choices choices;
  for (const Choice& choice : candidate.choices()) {
    bool known = false;
    std::string names;
    each_field([&](const char* name, const auto& field) {
      names += (names.empty() ? "" : ", ") + std::string(name);
      if (choice.name != name) return;
      field.set(choices, choice);
      known = true;
    });
    if (!known) throw_caller("'{}' is no choice of the CUDA backend; it has {}", choice.name, names);
  }
  if (choices.ffn_precision == choices.precision) choices.ffn_precision.reset();
  return choices;
}

Candidate to_candidate(const Choices& choices) {
  std::vector<Choice> all;
  each_field([&](const char* name, const auto& field) { all.push_back({name, field.get(choices)}); });
  return Candidate(std::move(all));
}

Choices plain_choices() {
  return {.path = Path::plain,
          .fused_attention = false,
          .causal_skip = false,
          .mask_elision = false,
          .fused_qkv = false,
          .fused_norm = false,
          .gemm_gelu = false,
          .graph = false};
}

}  // namespace gnomon::cuda
