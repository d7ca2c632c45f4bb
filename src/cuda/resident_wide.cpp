#include "cuda/resident_wide.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/kernels/resident_wide_layout.cuh"
#include "cuda/resident_choices.hpp"

namespace gnomon::cuda {
namespace {

using kernels::resident::kWideHead;
using kernels::resident::kWideModel;
using kernels::resident::kWideMostRows;
using kernels::resident::WideLayout;

}  // namespace

std::optional<std::string> refuses_wide(const ResidentSpec& spec, const ResidentForm& form,
                                        const DeviceProperties& device) {
  const StackConfig& c = spec.config;
  const std::string name = form.to_string();
  if (device.major != 9 || device.minor != 0)
    return fmt::format("the resident stack takes Hopper's instructions (compute capability 9.0), this device is {}.{}",
                       device.major, device.minor);
  if (form.paired_activation) return fmt::format("{}: the wide form computes activations in fp32", name);
  if (c.d_model != kWideModel) return fmt::format("{}: d_model is {}, not {}", name, kWideModel, c.d_model);
  if (c.head_dim() != kWideHead)
    return fmt::format("{}: a warpgroup takes heads of {} features, not {}", name, kWideHead, c.head_dim());
  if (c.d_ff % c.d_model != 0)
    return fmt::format("the resident stack's weights are blocks of d_model: d_ff {} is no multiple of {}", c.d_ff,
                       c.d_model);
  if (spec.seq > kWideMostRows)
    return fmt::format("{}: shared memory holds the operands of {} tokens, the sequence has {}", name, kWideMostRows,
                       spec.seq);
  const WideLayout layout(resident_choices(spec, form));
  if (layout.shared_bytes > device.max_shared_bytes)
    return fmt::format("needs {} bytes of shared memory, a block has {}", layout.shared_bytes, device.max_shared_bytes);
  return {};
}

std::vector<ResidentForm> wide_forms(const ResidentSpec& spec, const DeviceProperties& device) {
  const ResidentForm form{.cluster = 2, .wide = true};
  if (spec.batch * form.cluster * 2 < device.multiprocessors || refuses_wide(spec, form, device)) return {};
  return {form};
}

KernelSource wide_source(const ResidentSpec& spec, const ResidentForm& form) {
  const auto c = resident_choices(spec, form);
  return {.file = "resident_wide.cuh",
          .expression = fmt::format("gnomon::kernels::resident::resident_wide<gnomon::kernels::resident::WideStack<{}, "
                                    "{}, {}, {}, {}, {}, {}, {}, {}>>",
                                    c.seq, c.model, c.heads, c.hidden, c.causal, c.pre_norm, c.final_norm, c.masked,
                                    static_cast<int>(c.activation)),
          .defines = {}};
}

LaunchShape wide_shape(const ResidentSpec& spec, const ResidentForm& form, const DeviceProperties& device) {
  const WideLayout layout(resident_choices(spec, form));
  return {.blocks = std::min<std::int64_t>(spec.batch, device.multiprocessors / form.cluster) * form.cluster,
          .threads = WideLayout::threads,
          .dynamic_shared_bytes = layout.shared_bytes,
          .cluster = form.cluster};
}

}  // namespace gnomon::cuda
