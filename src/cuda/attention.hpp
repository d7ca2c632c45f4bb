// Our flash attention: which forms and tiles can run a problem, and their launches. Which is fastest is measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "cuda/kernel.hpp"
#include "cuda/kernels/params.cuh"
#include "cuda/mask.hpp"

namespace gnomon::cuda {

struct AttentionSpec {
  DType dtype = DType::f16;  // of Q, K, V and the output; f32 is computed in fp32 throughout
  std::int64_t batch = 1, seq = 1;
  std::int64_t heads = 1, head_dim = 64;
  bool causal = true;
  bool masked = false;  // a classified mask is given
  // The largest power of two, in bytes, that divides all addresses and row strides; 16 is enough.
  int alignment = 16;
};

struct AttentionTile {
  enum class Form { whole, streamed, fp32 } form = Form::streamed;
  int warps = 4;      // of a block
  int row_tiles = 1;  // tiles of 16 rows of a warp
  int parts = 1;      // whole: blocks that share a head
  int keys = 64;      // that meet a row tile at a time

  std::string to_string() const;  // "whole-w4-p1-k64", "streamed-w4-r2-k64", "fp32-w4-r1-k64"
  static std::optional<AttentionTile> parse(std::string_view text);
  bool operator==(const AttentionTile&) const = default;
};

std::optional<std::string> refuses_attention(const AttentionSpec& spec, const DeviceProperties& device);
std::optional<std::string> refuses_tile(const AttentionSpec& spec, const AttentionTile& tile,
                                        const DeviceProperties& device);
// Those that can run, the one to begin with first. None when refuses_attention().
std::vector<AttentionTile> attention_tiles(const AttentionSpec& spec, const DeviceProperties& device);

KernelSource attention_source(const AttentionSpec& spec, const AttentionTile& tile);

// Addresses and row strides go into the launch's params; they begin as Q, K and V side by side in rows of 3 * d_model,
// and an output of d_model.
Launch<kernels::Attention> attention(KernelLibrary& library, const AttentionSpec& spec, const AttentionTile& tile,
                                     const ClassifiedMask* mask);

}  // namespace gnomon::cuda
