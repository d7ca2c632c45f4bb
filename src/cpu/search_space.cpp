#include "cpu/search_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "core/memory.hpp"
#include "cpu/bare_products.hpp"
#include "cpu/cpu_info.hpp"
#include "cpu/stack_plan.hpp"
#include "cpu/thread_pool.hpp"
#include "reference/plain_pass.hpp"

namespace gnomon::cpu {
namespace {

// A slice's activations (x, Q|K|V, and the FFN's intermediate) should fill about half of the L2.
std::int64_t cached_sequences(const Problem& problem) {
  const StackConfig& c = problem.config;
  const std::int64_t l2 = std::max<std::int64_t>(cpu_info().l2_bytes, 256 << 10);
  const std::int64_t bytes = problem.seq * (4 * c.d_model + c.d_ff) * static_cast<std::int64_t>(sizeof(float));
  return std::max<std::int64_t>(1, l2 / 2 / std::max<std::int64_t>(1, bytes));
}

std::vector<std::vector<Choice>> one_each(const char* name, const std::vector<std::string>& values) {
  std::vector<std::vector<Choice>> alternatives;
  for (const std::string& value : values) alternatives.push_back({{name, value}});
  return alternatives;
}

// 1, 2, 4, ... sequences, as long as a slice is not the whole batch and has at most 8192 rows (by then its activations
// have left every private cache), and the whole.
std::vector<std::string> slice_sizes(const Problem& problem) {
  std::vector<std::string> sizes;
  for (std::int64_t n = 1; n < problem.batch && (n == 1 || n * problem.seq <= 8192); n *= 2)
    sizes.push_back(std::to_string(n));
  sizes.push_back("all");
  return sizes;
}

std::vector<std::string> chunk_sizes(const Problem& problem) {
  std::vector<std::string> sizes = {"all"};
  for (std::int64_t rows = 32; rows < std::min<std::int64_t>(problem.tokens(), 2049); rows *= 2)
    sizes.push_back(std::to_string(rows));
  return sizes;
}

// A team shares a slice, so its slices are larger than those of single workers: about 512 rows for each of them.
std::string team_slices(const Problem& problem, int threads) {
  std::int64_t n = 1;
  while (2 * n * problem.seq <= 512 * threads) n *= 2;
  return n >= problem.batch ? "all" : std::to_string(n);
}

Group path_group(const Problem& problem, int threads) {
  Group group{.name = "path", .alternatives = {}, .reopened_by = {}};
  const std::string team = team_slices(problem, threads);
  for (const char* partition : {"sequence", "row", "head"}) {
    if (problem.batch == 1 && std::string_view(partition) == "sequence" && threads > 1)
      continue;  // as "row" on one thread
    std::vector<Choice> choices = {{"partition", partition}, {"graph", "on"}, {"threads", std::to_string(threads)}};
    if (std::string_view(partition) != "sequence") choices.push_back({"slices", team});
    group.alternatives.push_back(std::move(choices));
  }
  group.alternatives.push_back(
      {{"partition", "row"}, {"graph", "off"}, {"threads", std::to_string(threads)}, {"slices", team}});
  for (int fewer = threads / 2; fewer >= 1; fewer /= 2)
    group.alternatives.push_back({{"threads", std::to_string(fewer)}});
  return group;
}

Group operator_group(const Problem& problem) {
  Group group{.name = "operators", .alternatives = {}, .reopened_by = {"slices"}};
  for (const char* name : {"gemm_gelu", "fused_qkv", "fused_norm"}) group.alternatives.push_back({{name, "off"}});
  if (problem.mask) group.alternatives.push_back({{"mask_elision", "off"}});
  if (problem.config.causal) group.alternatives.push_back({{"causal_skip", "off"}});
  group.alternatives.push_back({{"fused_attention", "off"}, {"causal_skip", "off"}, {"mask_elision", "off"}});
  return group;
}

std::int64_t scratch_bytes(const Problem& problem, const Choices& c) {
  const std::int64_t floats =
      c.path == Path::plain
          ? reference::PlainPass::scratch_floats(problem.config, problem.batch, problem.seq, problem.seq, c.threads)
          : make_stack_layout(problem, c).total_floats;
  return floats * static_cast<std::int64_t>(sizeof(float));
}

// Combinations that mean nothing here, each with its reason.
std::optional<std::string> contradiction(const Choices& c) {
  if (c.path == Path::plain) {
    const Choices p = plain_choices(c.threads);
    const bool all_off = to_candidate(c) == to_candidate(p);
    if (!all_off) return "the plain path has every switch off, partition=row, slices=all, chunk=all and precision=fp32";
    return {};
  }
  if (c.partition == Partition::sequence && !c.graph) {
    return "partition=sequence runs whole slices inside one parallel region: graph=off needs partition=row or head";
  }
  if (!c.fused_attention && c.causal_skip) return "causal_skip skips tiles of fused_attention, which is off";
  if (!c.fused_attention && c.mask_elision) return "mask_elision drops keys from fused_attention, which is off";
  return {};
}

}  // namespace

Choices estimate_choices(const Problem& problem, int threads) {
  Choices c;
  c.threads = threads;
  c.causal_skip = problem.config.causal;
  const std::int64_t cached = cached_sequences(problem);
  if (problem.batch >= threads) {
    c.partition = Partition::sequence;
    c.slices = std::min(cached, std::max<std::int64_t>(1, problem.batch / threads));
  } else {
    c.partition = threads > 1 ? Partition::row : Partition::sequence;
    c.slices = 0;
  }
  if (c.slices == problem.batch) c.slices = 0;
  const std::int64_t slice_rows = (c.slices == 0 ? problem.batch : c.slices) * problem.seq;
  c.chunk = slice_rows > 512 ? 256 : 0;
  return c;
}

Choices shrunk_to_fit(const Problem& problem, Choices c, std::int64_t room) {
  constexpr std::int64_t fewest_rows = 32;  // below, products are as slow as they are small
  while (scratch_bytes(problem, c) > room) {
    const std::int64_t sequences = c.slices == 0 ? problem.batch : c.slices;
    const std::int64_t rows = c.chunk == 0 ? sequences * problem.seq : c.chunk;
    if (sequences > 1) {
      c.slices = sequences / 2;
    } else if (rows > fewest_rows) {
      c.chunk = std::max(fewest_rows, rows / 2);
    } else if (c.partition == Partition::row) {
      c.partition = Partition::head;  // which keeps Q, K and V of one layer, not of two
    } else if (c.threads > 1) {
      c.threads /= 2;
    } else {
      break;
    }
  }
  return c;
}

Candidate forced_candidate(const Choices& choices, const std::vector<Choice>& forced) {
  const auto is_forced = [&](std::string_view name, std::string_view value) {
    return std::find(forced.begin(), forced.end(), Choice{std::string(name), std::string(value)}) != forced.end();
  };
  std::vector<Choice> changes;
  if (is_forced("path", "plain")) {
    changes = to_candidate(plain_choices(choices.threads)).choices();
  } else {
    if (is_forced("fused_attention", "off")) changes = {{"causal_skip", "off"}, {"mask_elision", "off"}};
    if (is_forced("graph", "off")) changes.insert(changes.end(), {{"partition", "row"}, {"slices", "all"}});
  }
  return to_candidate(choices).with(changes).with(forced);
}

// Products at half of a core's measured peak on each thread, and passes at 40 GB/s.
double plain_seconds(const Problem& problem, int threads) {
  return plain_flops(problem) / (0.5 * threads * product_peak(1)) + plain_bytes(problem) / 40e9;
}

std::vector<Group> search_groups(const Problem& problem, const Choices& incumbent, int threads) {
  std::vector<Group> groups;
  groups.push_back(path_group(problem, threads));
  if (incumbent.path == Path::plain) {
    // Nothing but `threads` may change on the plain path: to leave it, an alternative brings all its choices.
    const Candidate whole = to_candidate(estimate_choices(problem, threads));
    for (std::vector<Choice>& alternative : groups.front().alternatives)
      alternative = whole.with(alternative).choices();
    groups.front().alternatives.push_back(whole.choices());
  }
  // What changes most comes first, so that a short budget has settled it: fusions and precision are worth more than the
  // size of a slice, once that is near the cache's.
  groups.push_back(operator_group(problem));
  groups.push_back(
      {.name = "precision", .alternatives = one_each("precision", {"bf16_qk", "bf16"}), .reopened_by = {}});
  groups.push_back(
      {.name = "slices", .alternatives = one_each("slices", slice_sizes(problem)), .reopened_by = {"chunk"}});
  groups.push_back({.name = "chunk", .alternatives = one_each("chunk", chunk_sizes(problem)), .reopened_by = {}});
  return groups;
}

// The stack path's products read packed copies, beside the caller's weights.
MemoryNeed memory_need(const Problem& problem, const Choices& c) {
  const std::int64_t weights = weight_bytes(problem.config, sizeof(float));
  return {.tensors = tensor_bytes(problem),
          .weights = c.path == Path::plain ? weights : 2 * weights,
          .scratch = scratch_bytes(problem, c)};
}

std::optional<Refusal> refuses(const Problem& problem, const Constraints& constraints, const Candidate& candidate) {
  Choices c;
  try {
    c = parse_choices(candidate);
  } catch (const Error& error) {
    return Refusal{error.what()};
  }
  if (const auto reason = contradiction(c)) return Refusal{*reason};
  const int most = std::min(constraints.threads.value_or(available_cores()), available_cores());
  if (c.threads > most) return Refusal{fmt::format("threads={}: at most {} here", c.threads, most)};
  if (c.causal_skip && !problem.config.causal) return Refusal{"causal_skip: the stack is bidirectional"};
  if (c.precision != Precision::fp32) {
    if (constraints.fp32_only) return Refusal{"fp32_only is demanded"};
    if (!cpu_info().bf16) return Refusal{"precision: this CPU has no bf16 products (avx512_bf16)"};
  }
  const std::int64_t scratch = scratch_bytes(problem, c);
  if (auto refusal = refuses_memory(memory_need(problem, c), constraints)) return refusal;
  if (const AvailableMemory available = available_memory(); scratch > available.bytes) {
    return Refusal{fmt::format("needs {} of scratch, {} are available ({})", format_bytes(static_cast<double>(scratch)),
                               format_bytes(static_cast<double>(available.bytes)), available.source)};
  }
  return {};
}

std::optional<Refusal> unlike_whole(const Problem& part, const Problem& whole, const Choices& c) {
  if (c.path == Path::plain || part.batch == whole.batch) return {};
  const std::int64_t sequences = c.slices == 0 ? whole.batch : c.slices;
  const std::int64_t at_once = sequences * (c.partition == Partition::sequence ? c.threads : 1);
  if (at_once <= part.batch) return {};
  return Refusal{
      fmt::format("its slices take {} sequences at once: {} sequences, all there is time for, do not show them",
                  at_once, part.batch)};
}

int complexity(const Choices& c) {
  int parts = 0;
  for (const bool on :
       {c.fused_attention, c.causal_skip, c.mask_elision, c.fused_qkv, c.fused_norm, c.gemm_gelu, c.graph})
    parts += on;
  parts += (c.slices != 0) + (c.chunk != 0) + (c.path == Path::stack);
  parts += c.partition == Partition::sequence ? 0 : 1;
  return parts + (c.precision == Precision::fp32 ? 0 : c.precision == Precision::bf16_qk ? 100 : 200);
}

}  // namespace gnomon::cpu
