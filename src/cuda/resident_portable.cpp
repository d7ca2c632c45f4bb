#include "cuda/resident_portable.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/kernels/resident_portable_layout.cuh"
#include "cuda/resident_choices.hpp"

namespace gnomon::cuda {
namespace {

using kernels::resident::kPieceBytes;
using kernels::resident::most_portable_warps;
using kernels::resident::PortableLayout;

constexpr std::int64_t kWidths[] = {64, 128};
constexpr std::int64_t kHeads[] = {16, 32, 64, 128};

// What no number of sequences can help.
std::optional<std::string> refuses_stack(const ResidentSpec& spec, const DeviceProperties& device) {
  const StackConfig& c = spec.config;
  if (device.major < 8)
    return fmt::format("the portable resident stack takes compute capability 8.0, this device is {}.{}", device.major,
                       device.minor);
  if (std::ranges::find(kWidths, c.d_model) == std::end(kWidths))
    return fmt::format("the portable resident stack keeps rows of d_model 64 or 128 in registers, not {}", c.d_model);
  if (std::ranges::find(kHeads, c.head_dim()) == std::end(kHeads))
    return fmt::format("the portable resident stack has heads of 16, 32, 64 or 128 features, not {}", c.head_dim());
  if (c.d_ff % c.d_model != 0)
    return fmt::format("the resident stack's weights are blocks of d_model: d_ff {} is no multiple of {}", c.d_ff,
                       c.d_model);
  return {};
}

}  // namespace

std::optional<std::string> refuses_portable(const ResidentSpec& spec, const ResidentForm& form,
                                            const DeviceProperties& device) {
  if (const auto reason = refuses_stack(spec, device)) return reason;
  const std::string name = form.to_string();
  const int most = most_portable_warps(static_cast<int>(spec.config.d_model));
  if (form.groups * ((spec.seq + 15) / 16) > most)
    return fmt::format("{}: a CTA's registers hold {} warps of 16 tokens at d_model {}, {} x {} tokens are more", name,
                       most, spec.config.d_model, form.groups, spec.seq);
  if (form.paired_activation && spec.config.activation == Activation::relu)
    return fmt::format("{}: ReLU is computed in pairs anyway", name);
  const PortableLayout layout(resident_choices(spec, form));
  if (layout.step != 1 && layout.step != layout.units)
    return fmt::format("{}: at d_model {} weights are read in steps of {}", name, spec.config.d_model,
                       layout.units == 1 ? "1 piece" : "1 piece or 2");
  if (layout.pieces_in(device.max_shared_bytes) == 0)
    return fmt::format(
        "{}: of {} bytes of shared memory, keys and vectors take {}; three steps of {} bytes of weights do not fit "
        "beside them",
        name, device.max_shared_bytes, layout.ring_at, layout.step * kPieceBytes);
  return {};
}

std::vector<ResidentForm> portable_forms(const ResidentSpec& spec, const DeviceProperties& device) {
  std::vector<ResidentForm> forms;
  for (const bool paired : {false, true}) {
    for (const int sequences : {1, 2, 4, 8}) {
      if (sequences > 1 && spec.batch <= device.multiprocessors * (sequences / 2)) continue;
      for (const int step : {2, 1}) {  // the fewer barriers the better
        const ResidentForm form{.groups = sequences, .cluster = step, .paired_activation = paired, .portable = true};
        if (refuses_portable(spec, form, device)) continue;
        forms.push_back(form);
        break;
      }
    }
  }
  return forms;
}

KernelSource portable_source(const ResidentSpec& spec, const ResidentForm& form) {
  return {.file = "resident_portable.cuh",
          .expression = resident_expression("resident_portable", "PortableStack", resident_choices(spec, form)),
          .defines = {}};
}

int portable_stages(const ResidentSpec& spec, const ResidentForm& form, const DeviceProperties& device) {
  return PortableLayout(resident_choices(spec, form)).pieces_in(device.max_shared_bytes);
}

LaunchShape portable_shape(const ResidentSpec& spec, const ResidentForm& form, const DeviceProperties& device) {
  const PortableLayout layout(resident_choices(spec, form));
  return {.blocks = std::min<std::int64_t>((spec.batch + form.groups - 1) / form.groups, device.multiprocessors),
          .threads = layout.threads,
          .dynamic_shared_bytes = layout.shared_bytes(portable_stages(spec, form, device))};
}

}  // namespace gnomon::cuda
