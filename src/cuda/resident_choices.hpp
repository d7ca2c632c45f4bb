// What the resident kernel's forms are compiled with, of a spec and a form.
#pragma once

#include "cuda/resident.hpp"

namespace gnomon::cuda {

inline kernels::resident::Activation resident_activation(Activation activation) {
  switch (activation) {
    case Activation::gelu_erf:
      return kernels::resident::Activation::gelu;
    case Activation::gelu_tanh:
      return kernels::resident::Activation::gelu_tanh;
    case Activation::relu:
      break;
  }
  return kernels::resident::Activation::relu;
}

inline kernels::resident::Choices resident_choices(const ResidentSpec& spec, const ResidentForm& form) {
  const StackConfig& c = spec.config;
  return {.seq = static_cast<int>(spec.seq),
          .model = static_cast<int>(c.d_model),
          .heads = static_cast<int>(c.n_heads),
          .hidden = static_cast<int>(c.d_ff),
          .causal = c.causal,
          .pre_norm = c.norm == NormPlacement::pre,
          .final_norm = c.final_norm,
          .masked = spec.masked,
          .activation = resident_activation(c.activation),
          .paired_activation = form.paired_activation,
          .groups = form.split ? static_cast<int>(c.d_model / 64) : form.groups,
          .cluster = form.cluster};
}

}  // namespace gnomon::cuda
