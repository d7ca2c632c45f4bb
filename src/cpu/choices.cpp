#include "cpu/choices.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace gnomon::cpu {
namespace {

constexpr std::pair<const char*, Path> kPaths[] = {{"plain", Path::plain}, {"stack", Path::stack}};
constexpr std::pair<const char*, Precision> kPrecisions[] = {
    {"fp32", Precision::fp32}, {"bf16_qk", Precision::bf16_qk}, {"bf16", Precision::bf16}};
constexpr std::pair<const char*, Partition> kPartitions[] = {
    {"sequence", Partition::sequence}, {"row", Partition::row}, {"head", Partition::head}};
constexpr std::pair<const char*, bool> kSwitch[] = {{"off", false}, {"on", true}};

template <class T, std::size_t N>
T value_of(const Choice& choice, const std::pair<const char*, T> (&names)[N]) {
  std::string allowed;
  for (const auto& [name, value] : names) {
    if (choice.value == name) return value;
    allowed += (allowed.empty() ? "" : ", ") + std::string(name);
  }
  throw_caller("{}: expected one of {}, got '{}'", choice.name, allowed, choice.value);
}

template <class T, std::size_t N>
std::string name_of(T value, const std::pair<const char*, T> (&names)[N]) {
  for (const auto& [name, v] : names) {
    if (v == value) return name;
  }
  throw_internal("a choice has the unnamed value {}", static_cast<int>(value));
}

// Counts are of type T: what does not fit is refused, not wrapped.
template <class T>
T count_of(const Choice& choice, bool all_allowed) {
  if (all_allowed && choice.value == "all") return 0;
  T n = 0;
  const char* end = choice.value.data() + choice.value.size();
  const auto [stop, error] = std::from_chars(choice.value.data(), end, n);
  if (error != std::errc() || stop != end || n < 1) {
    throw_caller("{}: expected a number from 1{}, got '{}'", choice.name, all_allowed ? " or 'all'" : "", choice.value);
  }
  return n;
}

std::string count_name(std::int64_t n) { return n == 0 ? "all" : std::to_string(n); }

}  // namespace

Choices parse_choices(const Candidate& candidate) {
  Choices c;
  for (const Choice& choice : candidate.choices()) {
    const std::string& name = choice.name;
    if (name == "path")
      c.path = value_of(choice, kPaths);
    else if (name == "precision")
      c.precision = value_of(choice, kPrecisions);
    else if (name == "fused_attention")
      c.fused_attention = value_of(choice, kSwitch);
    else if (name == "causal_skip")
      c.causal_skip = value_of(choice, kSwitch);
    else if (name == "mask_elision")
      c.mask_elision = value_of(choice, kSwitch);
    else if (name == "fused_qkv")
      c.fused_qkv = value_of(choice, kSwitch);
    else if (name == "fused_norm")
      c.fused_norm = value_of(choice, kSwitch);
    else if (name == "gemm_gelu")
      c.gemm_gelu = value_of(choice, kSwitch);
    else if (name == "graph")
      c.graph = value_of(choice, kSwitch);
    else if (name == "partition")
      c.partition = value_of(choice, kPartitions);
    else if (name == "threads")
      c.threads = count_of<int>(choice, /*all_allowed=*/false);
    else if (name == "slices")
      c.slices = count_of<std::int64_t>(choice, /*all_allowed=*/true);
    else if (name == "chunk")
      c.chunk = count_of<std::int64_t>(choice, /*all_allowed=*/true);
    else {
      throw_caller(
          "'{}' is no choice of the CPU backend; it has path, precision, fused_attention, causal_skip, mask_elision, "
          "fused_qkv, fused_norm, gemm_gelu, graph, partition, threads, slices, chunk",
          name);
    }
  }
  return c;
}

Candidate to_candidate(const Choices& c) {
  return Candidate({{"path", name_of(c.path, kPaths)},
                    {"precision", name_of(c.precision, kPrecisions)},
                    {"fused_attention", name_of(c.fused_attention, kSwitch)},
                    {"causal_skip", name_of(c.causal_skip, kSwitch)},
                    {"mask_elision", name_of(c.mask_elision, kSwitch)},
                    {"fused_qkv", name_of(c.fused_qkv, kSwitch)},
                    {"fused_norm", name_of(c.fused_norm, kSwitch)},
                    {"gemm_gelu", name_of(c.gemm_gelu, kSwitch)},
                    {"graph", name_of(c.graph, kSwitch)},
                    {"partition", name_of(c.partition, kPartitions)},
                    {"threads", std::to_string(c.threads)},
                    {"slices", count_name(c.slices)},
                    {"chunk", count_name(c.chunk)}});
}

Choices plain_choices(int threads) {
  return {.path = Path::plain,
          .fused_attention = false,
          .causal_skip = false,
          .mask_elision = false,
          .fused_qkv = false,
          .fused_norm = false,
          .gemm_gelu = false,
          .graph = false,
          .partition = Partition::row,
          .threads = threads};
}

}  // namespace gnomon::cpu
