// The resident stack in its forms, and the edges where registers are scarcest.
#pragma once

#include "cuda/kernel_table.hpp"
#include "cuda/resident.hpp"

namespace gnomon::cuda {

inline std::vector<KernelCase> resident_kernels() {
  std::vector<KernelCase> table;
  const auto add = [&](const ResidentSpec& spec, const char* form) {
    table.push_back(
        {.source = resident_source(spec, *ResidentForm::parse(form)), .architectures = kHopper, .wgmma = true});
  };
  const StackConfig suite;
  add({.config = suite, .seq = 100}, "g2-c1");
  add({.config = suite, .seq = 100}, "g2-c1-paired");
  add({.config = suite, .seq = 100}, "g1-c2-paired");
  add({.config = {.d_ff = 256, .norm = NormPlacement::pre, .final_norm = true, .causal = false},
       .seq = 112,
       .masked = true},
      "g2-c1");
  add({.config = {.norm = NormPlacement::pre, .causal = false}, .seq = 100, .masked = true}, "g1-c2");
  add({.config = {.d_model = 64, .d_ff = 128, .activation = Activation::relu, .causal = false},
       .seq = 37,
       .masked = true},
      "g2-c1");
  add({.config = {.d_model = 64, .n_heads = 1, .d_ff = 384}, .seq = 61}, "g1-c1");
  table.push_back({.source = resident_pack_source({.config = suite}), .architectures = kHopper});
  return table;
}

}  // namespace gnomon::cuda
