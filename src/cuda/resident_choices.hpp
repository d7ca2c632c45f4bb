// What the resident kernel's forms are compiled with, of a spec and a form.
#pragma once

#include <fmt/format.h>

#include <string>

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

// A kernel for a stack as a type that takes all choices: "resident_stack", "Stack".
inline std::string resident_expression(const char* kernel, const char* stack, const kernels::resident::Choices& c) {
  return fmt::format(
      "gnomon::kernels::resident::{}<gnomon::kernels::resident::{}<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>>",
      kernel, stack, c.seq, c.model, c.heads, c.hidden, c.causal, c.pre_norm, c.final_norm, c.masked,
      static_cast<int>(c.activation), c.paired_activation, c.groups, c.cluster);
}

}  // namespace gnomon::cuda
