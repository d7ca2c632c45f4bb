// The whole stack in one launch of the resident kernel, between our kernels where the caller's tensors are not as it
// takes them: fp32 rows of adjacent elements.
#pragma once

#include <memory>
#include <optional>

#include "core/problem.hpp"
#include "cuda/choices.hpp"
#include "cuda/machine.hpp"
#include "cuda/pass.hpp"
#include "cuda/pass_guard.hpp"
#include "cuda/resident.hpp"

namespace gnomon::cuda {

class ResidentPass final : public Pass {
 public:
  ResidentPass(Machine& machine, const ResidentSpec& spec, const ResidentForm& form, DType border,
               const PassGuard& guard);

  std::size_t scratch_bytes() const override { return places_.end(); }
  void write_steps(StepList& steps, const Scratch& scratch, const Call& part, const BorderLayout& layout) override;

 private:
  static constexpr int kExactWords = 8;  // of Scratch::zeros, behind those of a mask's state

  void add_stack(StepList& steps, const Scratch& scratch, const Call& part, const BorderLayout& layout);
  void add_answer(StepList& steps, const Scratch& scratch, const Call& part) const;
  std::uint32_t* flag(const Scratch& scratch) const;
  float* floats(const Scratch& scratch, std::size_t at) const { return reinterpret_cast<float*>(scratch + at); }

  Machine& machine_;
  const ResidentSpec spec_;
  const ResidentForm form_;
  const DType border_;
  const PassGuard guard_;
  std::shared_ptr<const ResidentWeights> weights_;
  std::shared_ptr<const WeightsCopy> wide_;  // null: no answer of its own
  Places places_;
  std::size_t input_ = 0, output_ = 0, result_ = 0, exact_ = 0;
};

ResidentSpec resident_spec(const Problem& problem, std::int64_t sequences);
std::optional<ResidentForm> form_of(const Choices& choices, const ResidentSpec& spec, const DeviceProperties& device);
// Whether passes over so many sequences end in their own fp32 answer (PassGuard::answers).
bool resident_answers(const Problem& problem, std::int64_t sequences, const DeviceProperties& device);
std::size_t resident_scratch_bytes(const Problem& problem, std::int64_t sequences, const DeviceProperties& device);

}  // namespace gnomon::cuda
