// The resident stack: the whole forward pass in one launch (kernels/resident.cuh). Which problems it can run, in which
// forms, its weights' layout, and the launch. Which form is fastest is measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/stack_config.hpp"
#include "cuda/device_weights.hpp"
#include "cuda/kernel.hpp"
#include "cuda/kernels/resident_layout.cuh"

namespace gnomon::cuda {

struct ResidentSpec {
  StackConfig config;
  std::int64_t batch = 1, seq = 1;
  bool masked = false;
};

struct ResidentForm {
  int groups = 2;   // warpgroups of a CTA, each with 64 tokens
  int cluster = 1;  // CTAs that share a stream of weights, and a sequence when it is longer than one CTA's tokens
  bool paired_activation = false;  // the activation in fp16, two values at a time
  bool split = false;              // a cluster shares each sequence, `groups` means nothing (resident_split.hpp)
  bool portable = false;           // `groups` sequences to a CTA, `cluster` pieces a step (resident_portable.hpp)
  bool wide = false;               // a cluster of two shares a sequence's features (resident_wide.hpp)

  std::string to_string() const;  // "g2-c1", "g1-c2-paired", "split-c8", "wide-c2", "portable-s1-w2"
  static std::optional<ResidentForm> parse(std::string_view text);
  bool operator==(const ResidentForm&) const = default;
};

// Whose refusal says why a device has none for a problem.
ResidentForm usual_form(const ResidentSpec& spec, const DeviceProperties& device);
std::optional<std::string> refuses_resident(const ResidentSpec& spec, const ResidentForm& form,
                                            const DeviceProperties& device);
// Those that can run and may be the fastest, the one to begin with first.
std::vector<ResidentForm> resident_forms(const ResidentSpec& spec, const DeviceProperties& device);

KernelSource resident_source(const ResidentSpec& spec, const ResidentForm& form);
KernelSource resident_pack_source(const ResidentSpec& spec);

// The weights as the kernel reads them; they depend on the stack alone, not on batch, length or form.
class ResidentWeights {
 public:
  ResidentWeights(KernelLibrary& library, const StackConfig& config, const WeightsLayout& layout,
                  std::shared_ptr<const WeightsCopy> fp32, CUstream stream);

  const void* tiles() const { return tiles_.data(); }
  const float* vectors() const { return vectors_.as<float>(); }
  const float* final_gain() const { return fp32_->floats(final_norm_.weight); }
  const float* final_shift() const { return fp32_->floats(final_norm_.bias); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(tiles_.bytes() + vectors_.bytes()); }

 private:
  const std::shared_ptr<const WeightsCopy> fp32_;
  const NormAt final_norm_;
  DeviceBuffer tiles_, vectors_;
};

// Input, output, their strides, mask, range and flags go into the launch's params; they begin as contiguous tensors,
// unchecked. The output may be the input: a sequence is read before it is written.
Launch<kernels::resident::Call> resident(KernelLibrary& library, const ResidentSpec& spec, const ResidentForm& form,
                                         const ResidentWeights& weights);

}  // namespace gnomon::cuda
