// The portable operators as the launchers instantiate them: what the suite's shapes take, and the edges (widest rows,
// odd head sizes, masks) where registers are scarcest.
#pragma once

#include "cuda/attention.hpp"
#include "cuda/instantiate.hpp"
#include "cuda/kernel_table.hpp"

namespace gnomon::cuda {

inline std::vector<KernelCase> portable_kernels() {
  using D = DType;
  constexpr std::optional<DType> no;
  std::vector<KernelCase> table;
  const auto add = [&](KernelSource source) { table.push_back({.source = std::move(source)}); };
  add(instantiate("rows.cuh", "load_rows", D::f32, std::optional(D::f16), 4, 32));
  add(instantiate("rows.cuh", "load_rows", D::bf16, no, 1, 256));
  const auto norm = [&](D residual, D branch, std::optional<D> narrow, std::optional<D> out, auto... numbers) {
    add(instantiate("norm.cuh", "norm_rows", residual, std::optional(branch), narrow, out, numbers...));
  };
  norm(D::f32, D::f16, D::f16, no, 4, 64, 2, 2);
  norm(D::f32, D::f16, D::f16, no, 4, 16, 2, 2, false, 3);
  norm(D::f16, D::f16, D::f16, no, 4, 64, 2, 2, true);
  norm(D::bf16, D::bf16, D::bf16, no, 4, 512, 8, 1, true, 3);
  norm(D::f16, D::f16, D::f16, no, 1, 512, 32, 1, true);
  norm(D::f32, D::f32, no, D::f32, 4, 128, 2, 2);
  norm(D::bf16, D::bf16, no, D::bf16, 4, 512, 8, 1);
  norm(D::f32, D::f16, D::f16, no, 1, 512, 32, 1);
  add(instantiate("norm.cuh", "norm_rows", D::f32, no, no, std::optional(D::f32), 4, 32, 2, 1));
  add(instantiate("activation.cuh", "activate", D::f16, "GeluErf", 8));
  add(instantiate("activation.cuh", "activate", D::f32, "GeluTanh", 4));
  add(instantiate("mask.cuh", "classify_mask", 32));
  add(instantiate("mask.cuh", "classify_mask", 256));
  add(instantiate("guard.cuh", "decide", 32));
  add(instantiate("guard.cuh", "reload_rows", D::f32));
  add(instantiate("guard.cuh", "commit_rows", D::f32, 8));
  add(instantiate("exact.cuh", "exact_stack", D::f32, "GeluErf"));
  add(instantiate("exact.cuh", "exact_stack", D::bf16, "GeluTanh"));
  add(instantiate("judge.cuh", "compare", D::f16, D::f32));
  add(instantiate("judge.cuh", "fetch_first_bad", D::f32, D::f32));
  add(instantiate("judge.cuh", "check_pattern", 256));
  for (const char* kernel : {"plain_add", "plain_add_bias", "plain_scale", "plain_mask_causal", "plain_mask_keys",
                             "plain_softmax", "plain_split_heads", "plain_merge_heads", "plain_weigh", "plain_norm"}) {
    add(instantiate("plain_ops.cuh", kernel, 256));
  }
  const auto attention = [&](AttentionSpec spec, const char* tile) {
    table.push_back({.source = attention_source(spec, *AttentionTile::parse(tile)), .mma = true});
  };
  attention({.head_dim = 32}, "whole-w4-p1-k64");
  attention({.head_dim = 32, .masked = true}, "whole-w4-p1-k64");
  attention({.head_dim = 32}, "whole-w4-p1-k32");
  attention({.head_dim = 32}, "whole-w8-p1-k64");
  attention({.head_dim = 128, .masked = true}, "streamed-w4-r2-k32");
  attention({.dtype = D::bf16, .head_dim = 64, .masked = true}, "streamed-w4-r1-k128");
  attention({.head_dim = 64}, "streamed-w4-r2-k64");
  attention({.head_dim = 64, .masked = true}, "streamed-w4-r2-k64");
  attention({.head_dim = 128, .causal = false}, "streamed-w8-r1-k64");
  attention({.head_dim = 256, .masked = true}, "streamed-w4-r1-k32");
  attention({.dtype = D::bf16, .head_dim = 20, .masked = true}, "streamed-w4-r1-k64");
  attention({.head_dim = 5, .masked = true}, "whole-w2-p1-k64");
  for (const auto& [head_dim, tile] : {std::pair<int, const char*>{5, "fp32-w4-r1-k64"},
                                       {32, "fp32-w4-r1-k64"},
                                       {128, "fp32-w4-r1-k32"},
                                       {256, "fp32-w2-r1-k16"}}) {
    add(attention_source({.dtype = D::f32, .head_dim = head_dim, .masked = true}, *AttentionTile::parse(tile)));
  }
  return table;
}

}  // namespace gnomon::cuda
