#include "cuda/resident.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "cuda/resident_choices.hpp"
#include "cuda/resident_portable.hpp"
#include "cuda/resident_split.hpp"
#include "cuda/resident_wide.hpp"

namespace gnomon::cuda {
namespace {

using kernels::resident::Choices;
using kernels::resident::kMostShared;
using kernels::resident::Layout;
using kernels::resident::Packing;

constexpr std::int64_t kMostSeq = 128;  // scores of more keys do not fit a thread's registers
constexpr int kLeastStages = 4;         // weights on their way
constexpr std::int64_t kWidths[] = {64, 128};

// What no form can help.
std::optional<std::string> refuses_stack(const ResidentSpec& spec, const DeviceProperties& device) {
  const StackConfig& c = spec.config;
  if (device.major != 9 || device.minor != 0)
    return fmt::format("the resident stack takes Hopper's instructions (compute capability 9.0), this device is {}.{}",
                       device.major, device.minor);
  if (std::ranges::find(kWidths, c.d_model) == std::end(kWidths))
    return fmt::format(
        "the resident stack keeps rows of d_model 64 or 128 in registers, 256 in its split forms and 512 in its wide "
        "one, not {}",
        c.d_model);
  if (const std::int64_t head = c.head_dim(); head != 16 && head != 32 && head != 64)
    return fmt::format("the resident stack has heads of 16, 32 or 64 features, not {}", head);
  if (c.d_ff % c.d_model != 0)
    return fmt::format("the resident stack's weights are blocks of d_model: d_ff {} is no multiple of {}", c.d_ff,
                       c.d_model);
  if (spec.seq > kMostSeq)
    return fmt::format("the resident stack keeps the scores of up to {} keys in registers, the sequence has {}",
                       kMostSeq, spec.seq);
  return {};
}

LaunchShape shape_of(const ResidentSpec& spec, const ResidentForm& form, const DeviceProperties& device) {
  const Layout layout(resident_choices(spec, form));
  const std::int64_t clusters = (spec.batch + layout.sequences - 1) / layout.sequences;
  return {.blocks = std::min<std::int64_t>(clusters, device.multiprocessors / form.cluster) * form.cluster,
          .threads = layout.threads,
          .dynamic_shared_bytes = layout.shared_bytes,
          .cluster = form.cluster};
}

}  // namespace

std::string ResidentForm::to_string() const {
  if (split) return fmt::format("split-c{}", cluster);
  if (wide) return fmt::format("wide-c{}", cluster);
  if (portable) return fmt::format("portable-s{}-w{}{}", groups, cluster, paired_activation ? "-paired" : "");
  return fmt::format("g{}-c{}{}", groups, cluster, paired_activation ? "-paired" : "");
}

std::optional<ResidentForm> ResidentForm::parse(std::string_view text) {
  for (const int cluster : {1, 2, 4, 8, 16}) {
    const ResidentForm form{.cluster = cluster, .split = true};
    if (form.to_string() == text) return form;
  }
  if (const ResidentForm form{.cluster = 2, .wide = true}; form.to_string() == text) return form;
  for (const int sequences : {1, 2, 4, 8}) {
    for (const int step : {1, 2}) {
      for (const bool paired : {false, true}) {
        const ResidentForm form{sequences, step, paired, false, true};
        if (form.to_string() == text) return form;
      }
    }
  }
  for (const int groups : {1, 2}) {
    for (const int cluster : {1, 2}) {
      for (const bool paired : {false, true}) {
        const ResidentForm form{groups, cluster, paired};
        if (form.to_string() == text) return form;
      }
    }
  }
  return {};
}

ResidentForm usual_form(const ResidentSpec& spec, const DeviceProperties& device) {
  if (device.major != 9 || device.minor != 0) return {.groups = 1, .portable = true};
  if (spec.config.d_model == 256) return {.cluster = 2, .split = true};
  if (spec.config.d_model == 512) return {.cluster = 2, .wide = true};
  return {};
}

std::optional<std::string> refuses_resident(const ResidentSpec& spec, const ResidentForm& form,
                                            const DeviceProperties& device) {
  if (form.split) return refuses_split(spec, form, device);
  if (form.wide) return refuses_wide(spec, form, device);
  if (form.portable) return refuses_portable(spec, form, device);
  if (const auto reason = refuses_stack(spec, device)) return reason;
  const int tiles = static_cast<int>((spec.seq + 63) / 64);
  if (form.groups * form.cluster % tiles != 0 || (form.groups < tiles && form.groups != 1))
    return fmt::format("{}: {} tiles of 64 tokens do not fill its {} warpgroups", form.to_string(), tiles,
                       form.groups * form.cluster);
  if (form.paired_activation && spec.config.activation == Activation::relu)
    return fmt::format("{}: ReLU is computed in pairs anyway", form.to_string());
  const Layout layout(resident_choices(spec, form));
  if (layout.stages < kLeastStages)
    return fmt::format(
        "{}: of {} bytes of shared memory, activations and vectors take {}; {} tiles of weights of {} "
        "bytes do not fit beside them",
        form.to_string(), kMostShared, layout.ring_at, kLeastStages, layout.tile_bytes);
  if (layout.shared_bytes > device.max_shared_bytes)
    return fmt::format("needs {} bytes of shared memory, a block has {}", layout.shared_bytes, device.max_shared_bytes);
  return {};
}

std::vector<ResidentForm> resident_forms(const ResidentSpec& spec, const DeviceProperties& device) {
  std::vector<ResidentForm> forms;
  for (const bool paired : {false, true}) {
    for (const ResidentForm form : {ResidentForm{2, 1}, ResidentForm{1, 2}, ResidentForm{1, 1}, ResidentForm{2, 2}}) {
      const ResidentForm one{form.groups, form.cluster, paired};
      if (!refuses_resident(spec, one, device)) forms.push_back(one);
    }
  }
  // More than two CTAs share a sequence at a loss to what they do together: only where all sequences run at once. Of
  // large clusters a device holds fewer than it has multiprocessors for: an H200 fifteen of eight, and seven of
  // sixteen.
  for (const ResidentForm& form : split_forms(spec, device)) {
    const int left = form.cluster > 8 ? form.cluster : 0;
    if (form.cluster <= 2 || spec.batch * form.cluster <= device.multiprocessors - left) forms.push_back(form);
  }
  if (forms.empty()) forms = wide_forms(spec, device);
  if (forms.empty()) return portable_forms(spec, device);  // elsewhere the others win
  return forms;
}

KernelSource resident_source(const ResidentSpec& spec, const ResidentForm& form) {
  if (form.split) return split_source(spec, form);
  if (form.wide) return wide_source(spec, form);
  if (form.portable) return portable_source(spec, form);
  return {.file = "resident.cuh",
          .expression = resident_expression("resident_stack", "Stack", resident_choices(spec, form)),
          .defines = {}};
}

KernelSource resident_pack_source(const ResidentSpec& spec) {
  const Choices c = resident_choices(spec, {});
  return {.file = "resident_pack.cuh",
          .expression =
              fmt::format("gnomon::kernels::resident::pack_layer<gnomon::kernels::resident::Packed<{}, {}, {}, {}>>",
                          c.model, c.heads, c.hidden, static_cast<int>(c.activation)),
          .defines = {}};
}

ResidentWeights::ResidentWeights(KernelLibrary& library, const StackConfig& config, const WeightsLayout& layout,
                                 std::shared_ptr<const WeightsCopy> fp32, CUstream stream)
    : fp32_(std::move(fp32)), final_norm_(layout.final_norm) {
  const ResidentSpec spec{.config = config};
  const Packing sizes(resident_choices(spec, {}));
  const auto layers = layout.layers.size();
  const std::size_t layer_bytes =
      static_cast<std::size_t>(sizes.layer_tiles) * static_cast<std::size_t>(sizes.tile_bytes);
  tiles_ = DeviceBuffer(layers * layer_bytes);
  vectors_ = DeviceBuffer(layers * static_cast<std::size_t>(sizes.layer_floats) * sizeof(float));
  Launch<kernels::resident::PackLayer> pack;
  pack.kernel = &library.get(resident_pack_source(spec));
  pack.shape = {.blocks = library.device().properties().multiprocessors, .threads = 256};
  const std::int64_t square = config.d_model * config.d_model;
  for (std::size_t i = 0; i < layers; ++i) {
    const LayerAt& at = layout.layers[i];
    const auto bias = [&](std::int64_t first, std::int64_t part) {
      return first < 0 ? nullptr : fp32_->floats(first + part * config.d_model);
    };
    pack.params = {.q = fp32_->floats(at.qkv.weight),
                   .k = fp32_->floats(at.qkv.weight + square),
                   .v = fp32_->floats(at.qkv.weight + 2 * square),
                   .o = fp32_->floats(at.out.weight),
                   .w1 = fp32_->floats(at.fc1.weight),
                   .w2 = fp32_->floats(at.fc2.weight),
                   .bias_q = bias(at.qkv.bias, 0),
                   .bias_k = bias(at.qkv.bias, 1),
                   .bias_v = bias(at.qkv.bias, 2),
                   .bias_o = fp32_->floats(at.out.bias),
                   .bias_1 = fp32_->floats(at.fc1.bias),
                   .bias_2 = fp32_->floats(at.fc2.bias),
                   .gain1 = fp32_->floats(at.norm1.weight),
                   .shift1 = fp32_->floats(at.norm1.bias),
                   .gain2 = fp32_->floats(at.norm2.weight),
                   .shift2 = fp32_->floats(at.norm2.bias),
                   .tiles = tiles_.data() + i * layer_bytes,
                   .vectors = vectors_.as<float>() + i * static_cast<std::size_t>(sizes.layer_floats)};
    pack.run(stream);
  }
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
}

Launch<kernels::resident::Call> resident(KernelLibrary& library, const ResidentSpec& spec, const ResidentForm& form,
                                         const ResidentWeights& weights) {
  const DeviceProperties& device = library.device().properties();
  if (const auto reason = refuses_resident(spec, form, device)) throw_internal("{}", *reason);
  const LaunchShape shape = form.split      ? split_shape(spec, form, device)
                            : form.wide     ? wide_shape(spec, form, device)
                            : form.portable ? portable_shape(spec, form, device)
                                            : shape_of(spec, form, device);
  const std::int64_t width = spec.config.d_model;
  Launch<kernels::resident::Call> launch;
  launch.kernel = &library.get(resident_source(spec, form), shape.dynamic_shared_bytes);
  launch.shape = shape;
  launch.params = {.input_sequence = spec.seq * width,
                   .input_token = width,
                   .output_sequence = spec.seq * width,
                   .output_token = width,
                   .mask = {.seq = spec.seq, .sequence = spec.seq, .token = 1},
                   .weights = weights.tiles(),
                   .vectors = weights.vectors(),
                   .final_gain = weights.final_gain(),
                   .final_shift = weights.final_shift(),
                   .batch = static_cast<kernels::i32>(spec.batch),
                   .layers = static_cast<kernels::i32>(spec.config.layers),
                   .eps = static_cast<float>(spec.config.eps),
                   .stages = form.portable ? portable_stages(spec, form, device) : 0};
  return launch;
}

}  // namespace gnomon::cuda
