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
  const StackConfig wide{.d_model = 256, .d_ff = 1024};
  for (const char* form : {"split-c1", "split-c2", "split-c4", "split-c8", "split-c16"})
    add({.config = suite, .seq = 100}, form);
  add({.config = {.n_heads = 2, .d_ff = 1024, .norm = NormPlacement::pre, .final_norm = true, .causal = false},
       .seq = 128,
       .masked = true},
      "split-c16");
  add({.config = wide, .seq = 100}, "split-c2");
  add({.config = {.d_model = 256, .n_heads = 8, .d_ff = 512, .norm = NormPlacement::pre, .causal = false},
       .seq = 112,
       .masked = true},
      "split-c2");
  add({.config = wide, .seq = 100, .masked = true}, "split-c4");
  add({.config = {.n_heads = 1, .norm = NormPlacement::pre, .final_norm = true, .causal = false},
       .seq = 128,
       .masked = true},
      "split-c1");
  add({.config = {.n_heads = 2, .activation = Activation::gelu_tanh, .causal = false}, .seq = 250, .masked = true},
      "split-c4");
  add({.config = {.d_model = 64, .d_ff = 128, .activation = Activation::relu}, .seq = 128, .masked = true}, "split-c8");
  const StackConfig widest{.d_model = 512, .n_heads = 8, .d_ff = 2048};
  add({.config = widest, .seq = 100}, "wide-c2");
  add({.config = widest, .seq = 100, .masked = true}, "wide-c2");
  add({.config = {.d_model = 512, .n_heads = 8, .norm = NormPlacement::pre, .activation = Activation::relu}, .seq = 61},
      "wide-c2");
  const auto portable = [&](const ResidentSpec& spec, const char* form) {
    table.push_back({.source = resident_source(spec, *ResidentForm::parse(form)), .mma = true});
  };
  portable({.config = suite, .seq = 100}, "portable-s1-w2");
  portable({.config = suite, .seq = 100}, "portable-s1-w1-paired");
  portable({.config = {.n_heads = 1, .norm = NormPlacement::pre, .final_norm = true, .causal = false},
            .seq = 128,
            .masked = true},
           "portable-s1-w2");
  portable({.config = {.n_heads = 8, .activation = Activation::relu}, .seq = 30, .masked = true}, "portable-s4-w2");
  portable({.config = {.d_model = 64, .n_heads = 2, .d_ff = 256, .activation = Activation::gelu_tanh, .causal = false},
            .seq = 190,
            .masked = true},
           "portable-s1-w1-paired");
  table.push_back({.source = resident_pack_source({.config = suite})});
  table.push_back({.source = resident_pack_source({.config = wide}), .architectures = kHopper});
  table.push_back({.source = resident_pack_source({.config = widest}), .architectures = kHopper});
  return table;
}

}  // namespace gnomon::cuda
