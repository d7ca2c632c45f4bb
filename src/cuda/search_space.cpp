#include "cuda/search_space.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/memory.hpp"
#include "cuda/choice_facts.hpp"
#include "cuda/cudnn_attention.hpp"
#include "cuda/norm.hpp"
#include "cuda/plain_pass.hpp"
#include "cuda/resident_pass.hpp"
#include "cuda/stack_pass.hpp"
#include "plan/memory_need.hpp"

namespace gnomon::cuda {
namespace {

constexpr std::int64_t kFallbackScores = std::int64_t{256} << 20;  // bytes

bool commits(const Problem& problem, const Choices& c) { return problem.inplace && !all_fp32(c); }

std::int64_t slice_of(const Problem& problem, const Choices& c) {
  return c.slices == 0 ? problem.batch : std::min(c.slices, problem.batch);
}

AttentionSpec spec_of(const Problem& problem, const Choices& c) {
  return attention_spec(problem.config, c, slice_of(problem, c), problem.seq, problem.mask);
}

bool attention_runs(const Problem& problem, const Choices& c, const DeviceProperties& device) {
  return !refuses_attention(spec_of(problem, c), device);
}

// Our attention where it has a form for the type, the formula where not.
void choose_attention(const Problem& problem, Choices& c, const DeviceProperties& device) {
  c.causal_skip = problem.config.causal;
  c.fused_attention = true;
  if (attention_runs(problem, c, device)) return;
  c.fused_attention = c.causal_skip = c.mask_elision = c.fused_qkv = c.compact = false;
}

// All weights in fp32, and a copy of what narrow products read.
MemoryNeed memory_need(const Problem& problem, const Choices& c, const DeviceProperties& device) {
  const std::int64_t element = 4 + (narrow_type(c) ? 2 : 0);
  return {.tensors = tensor_bytes(problem),
          .weights = weight_bytes(problem.config, element),
          .scratch = static_cast<std::int64_t>(scratch_bytes(problem, c, device))};
}

// Halves slices until the pass fits; the last resort is the compact form.
void fit(const Problem& problem, const Constraints& constraints, Choices& c, const DeviceProperties& device) {
  const std::int64_t room = room_for_scratch(memory_need(problem, c, device), constraints, device.total_bytes / 2);
  while (static_cast<std::int64_t>(scratch_bytes(problem, c, device)) > room && slice_of(problem, c) > 1)
    c.slices = (slice_of(problem, c) + 1) / 2;
  c.compact = c.path == Path::stack && c.fused_attention && c.fused_norm &&
              static_cast<std::int64_t>(scratch_bytes(problem, c, device)) > room;
}

// The resident kernel's choices: all fusions in one, in fp16.
Choices resident_choices(const std::string& form) {
  Choices c;
  c.path = Path::resident;
  c.precision = Precision::fp16;
  c.tile = form;
  return c;
}

std::optional<std::string> refuses_as_resident(const Problem& problem, const Constraints& constraints, const Choices& c,
                                               const DeviceProperties& device) {
  Choices all = resident_choices(c.tile);
  all.graph = c.graph;
  all.causal_skip = c.causal_skip;
  all.slices = c.slices;
  if (to_candidate(all) != to_candidate(c))
    return "path=resident is all fusions in one, in fp16: every switch is on and every algo is 0";
  const ResidentSpec spec = resident_spec(problem, slice_of(problem, c));
  const auto form = form_of(c, spec, device);
  if (!form && c.tile != "first") return fmt::format("tile: '{}' is no form of the resident kernel", c.tile);
  const ResidentForm one = form.value_or(usual_form(spec, device));
  if (const auto reason = refuses_resident(spec, one, device)) return reason;
  if (!form)
    return fmt::format("tile=first: no form of the resident kernel is tried for {} sequences; tile={} can run them",
                       spec.batch, one.to_string());
  if (constraints.exact_activation && has_paired_activation(c))
    return "exact_activation is demanded: this form computes the activation in fp16";
  return {};
}

bool takes_packed_residual(const Problem& problem, const Choices& c) {
  return is_narrow(c.precision) && !c.ffn_precision && c.fused_norm && problem.config.norm == NormPlacement::post;
}

std::optional<std::string> contradiction(const Problem& problem, const Choices& c) {
  if (c.path == Path::plain) {
    if (to_candidate(c) == to_candidate(plain_choices())) return {};
    return "the plain path has every switch off, slices=all and precision=fp32";
  }
  if (c.slices != 0 && c.slices >= problem.batch)
    return fmt::format("slices={} of {} sequences is slices=all", c.slices, problem.batch);
  if (c.path == Path::resident) return {};
  if (c.packed_residual && !takes_packed_residual(problem, c))
    return "packed_residual=on adds a byte to the rows that every product reads: it needs 16 bits in both sublayers, "
           "fused_norm, and a post-norm stack";
  if (c.ffn_precision && is_narrow(c.precision) && is_narrow(*c.ffn_precision))
    return "ffn_precision: fp16 and bf16 do not meet in one candidate: each would need a copy of all weights";
  if (c.compact && (!c.fused_attention || !c.fused_norm))
    return "compact=on needs fused_attention and fused_norm: they take rows that are apart, in place";
  if (!c.fused_attention) {
    if (is_narrow(c.precision)) return "fused_attention=off is the formula in fp32: it takes precision=fp32 or tf32";
    if (c.fused_qkv) return "fused_attention=off reads Q, K and V from tensors of their own: fused_qkv must be off";
    if (c.causal_skip) return "causal_skip skips tiles of fused_attention, which is off";
    if (c.mask_elision) return "mask_elision drops keys from fused_attention, which is off";
    if (c.tile != "first") return "tile is of fused_attention, which is off";
    return {};
  }
  if (!c.causal_skip && problem.config.causal)
    return "causal_skip=off: the fused attention has no form that computes masked tiles; it needs fused_attention=off";
  if (c.causal_skip && !problem.config.causal) return "causal_skip: the stack is bidirectional";
  if (!c.mask_elision)
    return "mask_elision=off: the fused attention has no form that ignores what the mask tells; it needs "
           "fused_attention=off";
  return {};
}

std::optional<std::string> refuses_fused_attention(const AttentionSpec& spec, const Choices& c,
                                                   const DeviceProperties& device) {
  if (c.tile == kCudnnTile) return refuses_cudnn_attention(spec);
  if (const auto reason = refuses_attention(spec, device)) return reason;
  const auto tile = tile_of(c, spec, device);
  if (!tile) return fmt::format("tile: '{}' is none of our attention's, and not 'cudnn'", c.tile);
  return refuses_tile(spec, *tile, device);
}

std::vector<std::vector<Choice>> one_each(const char* name, const std::vector<std::string>& values) {
  std::vector<std::vector<Choice>> alternatives;
  for (const std::string& value : values) alternatives.push_back({{name, value}});
  return alternatives;
}

// What a slice's activations (x, Q|K|V, the FFN's) take, to be near the second-level cache's size.
std::vector<std::string> slice_sizes(const Problem& problem, const DeviceProperties& device) {
  std::vector<std::string> sizes = {"all"};
  const std::int64_t row = 16 * problem.config.d_model, sequence = problem.seq * row;
  for (std::int64_t n =
           std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, 4 * device.l2_bytes / sequence)));
       n >= 1 && n * sequence * 8 >= device.l2_bytes; n /= 2) {
    if (n < problem.batch) sizes.push_back(std::to_string(n));
  }
  return sizes;
}

// Where 16 bits did not pass, or did not pay, for all: every other pair.
std::vector<std::vector<Choice>> mixed_precisions(const Problem& problem, const Choices& base,
                                                  const DeviceProperties& device) {
  using enum Precision;
  std::vector<std::vector<Choice>> alternatives;
  for (const auto& [attention, ffn] : {std::pair{tf32, fp16},
                                       {fp16, tf32},
                                       {fp32, fp16},
                                       {fp16, fp32},
                                       {tf32, bf16},
                                       {bf16, tf32},
                                       {fp32, bf16},
                                       {bf16, fp32},
                                       {fp32, tf32},
                                       {tf32, fp32}}) {
    Choices c = base;
    c.precision = attention;
    c.ffn_precision = ffn;
    c.algo_qkv = c.algo_out = c.algo_fc1 = c.algo_fc2 = 0;  // suggestions for other types
    if (operand_type(attention) != operand_type(base.precision)) {
      c.tile = "first";
      choose_attention(problem, c, device);
      if (!c.fused_attention) continue;
    }
    alternatives.push_back(to_candidate(c).choices());
  }
  return alternatives;
}

}  // namespace

Choices fallback_choices(const Problem& problem, const Choices& choices, const DeviceProperties& device) {
  Choices c;
  c.precision = Precision::fp32;
  choose_attention(problem, c, device);
  c.gemm_gelu = !approximates_activation(problem.config, c);
  c.graph = false;
  c.compact = choices.compact && c.fused_attention && c.fused_norm;
  c.slices = choices.slices;
  return c;
}

std::int64_t fallback_queries(const Problem& problem, const Choices& choices) {
  const std::int64_t row =
      2 * static_cast<std::int64_t>(sizeof(float)) * slice_of(problem, choices) * problem.config.n_heads * problem.seq;
  return std::clamp<std::int64_t>(kFallbackScores / row, 1, problem.seq);
}

std::size_t scratch_bytes(const Problem& problem, const Choices& c, const DeviceProperties& device) {
  if (c.path == Path::plain) return PlainPass::scratch_bytes(problem.config, problem.batch, problem.seq, problem.seq);
  const auto of = [&](const Choices& chosen, bool keeps_result, std::int64_t queries) {
    return stack_scratch_bytes(problem.config, chosen, slice_of(problem, c), problem.seq, problem.dtype, problem.mask,
                               keeps_result, queries);
  };
  const std::size_t pass = c.path == Path::resident ? resident_scratch_bytes(problem, slice_of(problem, c), device)
                                                    : of(c, commits(problem, c), problem.seq);
  if (all_fp32(c)) return pass;
  if (c.path == Path::resident && resident_answers(problem, slice_of(problem, c), device)) return pass;
  return std::max(pass, of(fallback_choices(problem, c, device), true, fallback_queries(problem, c)));
}

Choices estimate_choices(const Problem& problem, const Constraints& constraints, const DeviceProperties& device) {
  if (!constraints.fp32_only) {
    Choices resident = resident_choices("first");
    resident.causal_skip = problem.config.causal;
    fit(problem, constraints, resident, device);
    if (!refuses_as_resident(problem, constraints, resident, device)) return resident;
  }
  return estimate_stack(problem, constraints, device);
}

Choices estimate_stack(const Problem& problem, const Constraints& constraints, const DeviceProperties& device) {
  Choices c;
  c.precision = constraints.fp32_only ? Precision::fp32 : Precision::fp16;
  choose_attention(problem, c, device);
  if (!c.fused_attention) c.precision = Precision::fp32;
  c.gemm_gelu = !(constraints.exact_activation && approximates_activation(problem.config, c));
  c.fused_norm = !refuses_norm(problem.config.d_model);
  fit(problem, constraints, c, device);
  c.graph = slice_of(problem, c) * problem.seq < 65536;  // a pass of few rows is launch-bound
  return c;
}

Candidate forced_candidate(const Choices& choices, const std::vector<Choice>& forced) {
  const auto is_forced = [&](std::string_view name, std::string_view value) {
    return std::ranges::find(forced, Choice{std::string(name), std::string(value)}) != forced.end();
  };
  std::vector<Choice> changes;
  if (is_forced("path", "plain")) {
    changes = to_candidate(plain_choices()).choices();
  } else if (is_forced("path", "resident") && choices.path != Path::resident) {
    Choices c = resident_choices("first");
    c.causal_skip = choices.causal_skip, c.graph = choices.graph, c.slices = choices.slices;
    changes = to_candidate(c).choices();
  } else if (is_forced("fused_attention", "off")) {
    changes = {{"causal_skip", "off"}, {"mask_elision", "off"}, {"fused_qkv", "off"}, {"precision", "fp32"}};
  }
  return to_candidate(choices).with(changes).with(forced);
}

std::vector<Group> search_groups(const Problem& problem, const Choices& incumbent, const DeviceProperties& device) {
  std::vector<Group> groups;
  const auto add = [&](const char* name, std::vector<std::vector<Choice>> alternatives,
                       std::vector<std::string> reopened_by = {}) {
    groups.push_back({name, std::move(alternatives), std::move(reopened_by)});
  };
  // A precision brings the attention that it can have. Nothing may change on the plain path: leaving it, all changes.
  std::vector<std::vector<Choice>> precisions;
  for (const Precision precision : {Precision::fp16, Precision::bf16, Precision::tf32, Precision::fp32}) {
    Choices c = incumbent.path == Path::stack ? incumbent : estimate_stack(problem, {}, device);
    c.precision = precision;
    c.ffn_precision.reset();
    c.packed_residual = false;
    c.tile = "first";
    choose_attention(problem, c, device);
    precisions.push_back(to_candidate(c).choices());
  }
  if (const auto forms = resident_forms(resident_spec(problem, slice_of(problem, incumbent)), device); !forms.empty()) {
    std::vector<std::vector<Choice>> alternatives;
    for (const ResidentForm& form : forms) {
      Choices c = resident_choices(form.to_string());
      c.causal_skip = problem.config.causal;
      alternatives.push_back(to_candidate(c).choices());
    }
    add("resident", std::move(alternatives));
  }
  add("precision", std::move(precisions));
  if (incumbent.path != Path::resident && !incumbent.ffn_precision && !is_narrow(incumbent.precision)) {
    const bool stack = incumbent.path == Path::stack;
    add("sublayers", mixed_precisions(problem, stack ? incumbent : estimate_stack(problem, {}, device), device));
  }
  if (incumbent.path == Path::plain) return groups;
  add("path", {{{"graph", "on"}}, {{"graph", "off"}}}, {"slices"});
  if (incumbent.path == Path::resident) return groups;
  std::vector<std::vector<Choice>> operators = one_each("gemm_gelu", {"off", "on"});
  if (incumbent.fused_attention) {
    operators.push_back({{"fused_qkv", "off"}});
    if (!is_narrow(incumbent.precision))
      operators.push_back({{"fused_attention", "off"},
                           {"tile", "first"},
                           {"causal_skip", "off"},
                           {"mask_elision", "off"},
                           {"fused_qkv", "off"}});
  }
  if (!incumbent.packed_residual) operators.push_back({{"fused_norm", "off"}});
  add("operators", std::move(operators));
  if (takes_packed_residual(problem, incumbent))
    add("residual", one_each("packed_residual", {incumbent.packed_residual ? "off" : "on"}));
  if (incumbent.fused_attention) {
    std::vector<std::string> tiles;
    for (const AttentionTile& tile : attention_tiles(spec_of(problem, incumbent), device))
      tiles.push_back(tile.to_string());
    if (is_narrow(incumbent.precision)) tiles.push_back(kCudnnTile);
    add("tile", one_each("tile", tiles), {"precision", "sublayers"});
  }
  std::vector<std::string> algorithms;
  for (int i = 0; i < kMostAlgorithms; ++i) algorithms.push_back(std::to_string(i));
  for (const char* name : {"algo_fc1", "algo_fc2", "algo_qkv", "algo_out"})
    add(name, one_each(name, algorithms), {"precision", "sublayers", "slices"});
  if (const auto sizes = slice_sizes(problem, device); sizes.size() > 1) add("slices", one_each("slices", sizes));
  return groups;
}

std::optional<Refusal> refuses(const Problem& problem, const Constraints& constraints, const Candidate& candidate,
                               const DeviceProperties& device) {
  Choices c;
  try {
    c = parse_choices(candidate);
  } catch (const Error& error) {
    return Refusal{error.what()};
  }
  if (const auto reason = contradiction(problem, c)) return Refusal{*reason};
  const auto forced = [&](std::string_view name) {
    return std::ranges::find(constraints.forced, name, &Choice::name) != constraints.forced.end();
  };
  if (c.ffn_precision && forced("precision") && !forced("ffn_precision"))
    return Refusal{"precision is forced: it holds for the FFN too, unless ffn_precision is forced as well"};
  if (constraints.fp32_only && !all_fp32(c)) return Refusal{"fp32_only is demanded"};
  if (constraints.exact_activation && approximates_activation(problem.config, c))
    return Refusal{"exact_activation is demanded: cuBLASLt's epilogue has the tanh form of GELU only"};
  if (const auto reason = refuses_norm(problem.config.d_model)) return Refusal{*reason};
  if (c.path == Path::resident) {
    if (const auto reason = refuses_as_resident(problem, constraints, c, device)) return Refusal{*reason};
  }
  if (c.path == Path::stack && c.fused_attention) {
    if (const auto reason = refuses_fused_attention(spec_of(problem, c), c, device)) return Refusal{*reason};
  }
  const MemoryNeed need = memory_need(problem, c, device);
  if (auto refusal = refuses_memory(need, constraints)) return refusal;
  if (need.total() > device.total_bytes)
    return Refusal{fmt::format(
        "needs {}, {} of it scratch; the device has {}", format_bytes(static_cast<double>(need.total())),
        format_bytes(static_cast<double>(need.scratch)), format_bytes(static_cast<double>(device.total_bytes)))};
  return {};
}

std::optional<Refusal> unlike_whole(const Problem& part, const Problem& whole, const Choices& c) {
  if (c.path == Path::plain || part.batch == whole.batch || slice_of(whole, c) <= part.batch) return {};
  return Refusal{
      fmt::format("its slices take {} sequences at once: {} sequences, all there is time for, do not show them",
                  slice_of(whole, c), part.batch)};
}

}  // namespace gnomon::cuda
