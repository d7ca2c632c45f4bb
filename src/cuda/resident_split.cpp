#include "cuda/resident_split.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/kernels/resident_split_layout.cuh"
#include "cuda/resident_choices.hpp"

namespace gnomon::cuda {
namespace {

using kernels::resident::kMostShared;
using kernels::resident::SplitLayout;

constexpr std::int64_t kWidths[] = {64, 128, 256};
constexpr std::int64_t kHeads[] = {16, 32, 64, 128};
constexpr int kMostRows = 128;       // a thread holds two features of each token
constexpr int kOfPairs = 16;         // CTAs, two to each 16 tokens
constexpr int kMostRowsOfWide = 64;  // where four warpgroups share the registers

template <std::size_t N>
bool is_one_of(std::int64_t value, const std::int64_t (&values)[N]) {
  return std::ranges::find(values, value) != std::end(values);
}

// What no cluster can help.
std::optional<std::string> refuses_stack(const ResidentSpec& spec, const DeviceProperties& device) {
  const StackConfig& c = spec.config;
  if (device.major != 9 || device.minor != 0)
    return fmt::format("the resident stack takes Hopper's instructions (compute capability 9.0), this device is {}.{}",
                       device.major, device.minor);
  if (!is_one_of(c.d_model, kWidths))
    return fmt::format("the split resident stack has d_model 64, 128 or 256, not {}", c.d_model);
  if (!is_one_of(c.head_dim(), kHeads) || (c.d_model == 256 && c.head_dim() == 128)) {
    return fmt::format("the split resident stack has heads of 16, 32, 64 or, below d_model 256, 128 features, not {}",
                       c.head_dim());
  }
  if (c.d_ff % c.d_model != 0)
    return fmt::format("the resident stack's weights are blocks of d_model: d_ff {} is no multiple of {}", c.d_ff,
                       c.d_model);
  return {};
}

}  // namespace

std::optional<std::string> refuses_split(const ResidentSpec& spec, const ResidentForm& form,
                                         const DeviceProperties& device) {
  if (const auto reason = refuses_stack(spec, device)) return reason;
  const std::string name = form.to_string();
  if (form.paired_activation) return fmt::format("{}: the split form computes activations in fp32", name);
  const std::int64_t most = spec.config.d_model > 128 ? kMostRowsOfWide : kMostRows;
  if (form.cluster == kOfPairs) {
    const StackConfig& c = spec.config;
    if (c.d_model != 128 || c.n_heads % 2 != 0 || c.d_ff % 256 != 0 || c.d_ff > 1024 || spec.seq > 128) {
      return fmt::format(
          "{}: eight pairs of CTAs, 16 tokens each, halve heads and hidden units: d_model is 128, heads are even, d_ff "
          "a multiple of 256 up to 1024, tokens up to 128; not d_model {}, {} heads, d_ff {}, {} tokens",
          name, c.d_model, c.n_heads, c.d_ff, spec.seq);
    }
  }
  if (spec.seq > most * form.cluster) {
    return fmt::format("{}: a thread's registers hold {} tokens of a CTA's, a sequence of {} over {} CTAs has more",
                       name, most, spec.seq, form.cluster);
  }
  const SplitLayout layout(resident_choices(spec, form));
  if (layout.used <= layout.sharers / 2) {
    return fmt::format("{}: {} tokens are {} CTAs of 16, more than half of the cluster would idle", name, spec.seq,
                       layout.used);
  }
  const int groups = static_cast<int>(spec.config.d_model / 64);
  if (layout.stages < 2 * groups) {
    return fmt::format(
        "{}: of {} bytes of shared memory, keys and operands take {}; {} stages of {} bytes for the "
        "weights do not fit beside them",
        name, kMostShared, layout.ring_at, 2 * groups, layout.stage_bytes);
  }
  if (layout.shared_bytes > device.max_shared_bytes)
    return fmt::format("needs {} bytes of shared memory, a block has {}", layout.shared_bytes, device.max_shared_bytes);
  return {};
}

std::vector<ResidentForm> split_forms(const ResidentSpec& spec, const DeviceProperties& device) {
  std::vector<ResidentForm> forms;
  for (const int cluster : {kOfPairs, 8, 4, 2, 1}) {
    const ResidentForm form{.cluster = cluster, .split = true};
    if (!refuses_split(spec, form, device)) forms.push_back(form);
  }
  return forms;
}

KernelSource split_source(const ResidentSpec& spec, const ResidentForm& form) {
  const auto c = resident_choices(spec, form);
  return {
      .file = "resident_split.cuh",
      .expression = fmt::format("gnomon::kernels::resident::resident_split<gnomon::kernels::resident::SplitStack<{}, "
                                "{}, {}, {}, {}, {}, {}, {}, {}, {}>>",
                                c.seq, c.model, c.heads, c.hidden, c.causal, c.pre_norm, c.final_norm, c.masked,
                                static_cast<int>(c.activation), c.cluster),
      .defines = {}};
}

LaunchShape split_shape(const ResidentSpec& spec, const ResidentForm& form, const DeviceProperties& device) {
  const SplitLayout layout(resident_choices(spec, form));
  return {.blocks = std::min<std::int64_t>(spec.batch, device.multiprocessors / form.cluster) * form.cluster,
          .threads = layout.threads,
          .dynamic_shared_bytes = layout.shared_bytes,
          .cluster = form.cluster};
}

}  // namespace gnomon::cuda
