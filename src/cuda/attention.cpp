#include "cuda/attention.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "cuda/instantiate.hpp"

namespace gnomon::cuda {
namespace {

using Form = AttentionTile::Form;

constexpr std::int64_t kWidest = 256;

std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

// Bytes that one copy takes: no more than a head's offset and its length allow.
int copy_bytes(const AttentionSpec& spec) {
  const auto head = static_cast<std::int64_t>(spec.head_dim * static_cast<std::int64_t>(size_of(spec.dtype)));
  int bytes = std::min(spec.alignment, 16);
  while (head % bytes != 0) bytes /= 2;
  return bytes;
}

std::int64_t rows_of(const AttentionTile& tile) { return std::int64_t{tile.warps} * tile.row_tiles * 16; }

// attention_tile.cuh: rows are 8 elements longer than the padded head. attention_fp32.cuh: Fp32Layout::kBytes.
std::int64_t shared_bytes(const AttentionSpec& spec, const AttentionTile& tile) {
  if (tile.form == Form::fp32) {
    const std::int64_t q = rows_of(tile) + 4, k = tile.keys + 4, v = round_up(spec.head_dim, 32) + 4;
    return 4 * (spec.head_dim * (q + k) + tile.keys * (v + q));
  }
  const std::int64_t row = (round_up(spec.head_dim, 16) + 8) * 2;
  if (tile.form == Form::whole) return 3 * round_up(spec.seq, 16) * row;
  return (rows_of(tile) + 4 * std::int64_t{tile.keys}) * row;
}

std::int64_t blocks_of(const AttentionSpec& spec, const AttentionTile& tile) {
  const std::int64_t rows = rows_of(tile);
  return spec.batch * spec.heads * (tile.form == Form::whole ? tile.parts : (spec.seq + rows - 1) / rows);
}

// Registers that a thread's scores, outputs and queries take, of 255: what is left is for addresses and fragments.
std::int64_t tile_registers(const AttentionSpec& spec, const AttentionTile& tile) {
  if (tile.form == Form::fp32) return tile.keys / 2 + round_up(spec.head_dim, 32) / 2;  // four rows a thread
  const std::int64_t width = round_up(spec.head_dim, 16);
  const bool queries = width <= 128 && (tile.row_tiles == 1 || tile.keys >= 64);
  return tile.row_tiles * (tile.keys / 2 + width / 2 + (queries ? width / 4 : 0));
}
constexpr std::int64_t kTileRegisters = 176, kFp32TileRegisters = 140;

}  // namespace

std::string AttentionTile::to_string() const {
  if (form == Form::whole) return fmt::format("whole-w{}-p{}-k{}", warps, parts, keys);
  return fmt::format("{}-w{}-r{}-k{}", form == Form::fp32 ? "fp32" : "streamed", warps, row_tiles, keys);
}

std::optional<AttentionTile> AttentionTile::parse(std::string_view text) {
  AttentionTile tile;
  const auto take = [&](std::string_view word) {
    if (!text.starts_with(word)) return false;
    text.remove_prefix(word.size());
    return true;
  };
  const auto number = [&](std::string_view word, int& to) {
    if (!take(word)) return false;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
    if (error != std::errc{} || to < 1) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  };
  if (take("whole")) {
    tile.form = Form::whole;
    if (!number("-w", tile.warps) || !number("-p", tile.parts) || !number("-k", tile.keys)) return {};
  } else {
    if (take("fp32")) {
      tile.form = Form::fp32;
    } else if (!take("streamed")) {
      return {};
    }
    if (!number("-w", tile.warps) || !number("-r", tile.row_tiles) || !number("-k", tile.keys)) return {};
  }
  return text.empty() ? std::optional(tile) : std::nullopt;
}

std::optional<std::string> refuses_attention(const AttentionSpec& spec, const DeviceProperties& device) {
  if (spec.head_dim > kWidest)
    return fmt::format("our attention keeps a row of the output in registers: head sizes up to {}, this one is {}",
                       kWidest, spec.head_dim);
  if (spec.dtype == DType::f64) return "our attention takes f32, f16 or bf16, not f64";
  if (spec.seq > std::numeric_limits<std::int32_t>::max() / 2)
    return fmt::format("positions are 32-bit: at most 2^30 tokens of a sequence, here {}", spec.seq);
  if (attention_tiles(spec, device).empty())
    return fmt::format("no tile of attention fits head size {} in {} bytes of shared memory", spec.head_dim,
                       device.max_shared_bytes);
  return {};
}

std::optional<std::string> refuses_tile(const AttentionSpec& spec, const AttentionTile& tile,
                                        const DeviceProperties& device) {
  if ((spec.dtype == DType::f32) != (tile.form == Form::fp32))
    return fmt::format("{} is not computed in the form {}", name_of(spec.dtype), tile.to_string());
  if (const std::int64_t bytes = shared_bytes(spec, tile); bytes > device.max_shared_bytes)
    return fmt::format("needs {} bytes of shared memory, a block has {}", bytes, device.max_shared_bytes);
  const std::int64_t room = tile.form == Form::fp32 ? kFp32TileRegisters : kTileRegisters;
  if (const std::int64_t used = tile_registers(spec, tile); used > room)
    return fmt::format("its tiles take {} registers of a thread, {} are left for them", used, room);
  if (tile.form == Form::whole && tile.keys > 64)
    return fmt::format("the whole form meets at most 64 keys at a time, not {}", tile.keys);
  if (tile.form == Form::whole && (tile.parts - 1) * tile.warps * 16 >= spec.seq)
    return fmt::format("{} parts of {} warps are more than {} tokens occupy", tile.parts, tile.warps, spec.seq);
  if (blocks_of(spec, tile) > std::numeric_limits<std::int32_t>::max())
    return fmt::format("{} blocks, a launch has at most 2^31 - 1", blocks_of(spec, tile));
  return {};
}

std::vector<AttentionTile> attention_tiles(const AttentionSpec& spec, const DeviceProperties& device) {
  static constexpr AttentionTile kAll[] = {
      {Form::whole, 4, 1, 1, 32},    {Form::whole, 4, 1, 1, 64},    {Form::whole, 8, 1, 1, 64},
      {Form::whole, 4, 1, 2, 64},    {Form::whole, 2, 1, 1, 64},    {Form::whole, 8, 1, 1, 32},
      {Form::streamed, 4, 1, 1, 64}, {Form::streamed, 4, 2, 1, 64}, {Form::streamed, 4, 1, 1, 128},
      {Form::streamed, 8, 1, 1, 64}, {Form::streamed, 4, 1, 1, 32}, {Form::streamed, 4, 2, 1, 32},
      {Form::streamed, 2, 1, 1, 32}, {Form::fp32, 4, 1, 1, 64},     {Form::fp32, 4, 1, 1, 32},
      {Form::fp32, 2, 1, 1, 16},
  };
  // Where whole sequences leave room for two blocks, they go first.
  const bool short_sequence = 2 * shared_bytes(spec, kAll[0]) <= device.shared_bytes_per_multiprocessor;
  std::vector<AttentionTile> tiles;
  for (const AttentionTile& tile : kAll) {
    if (tile.form == Form::whole && !short_sequence) continue;
    if (tile.form == Form::streamed && short_sequence && spec.seq <= 64 && tile.warps > 4) continue;
    if (!refuses_tile(spec, tile, device)) tiles.push_back(tile);
  }
  return tiles;
}

KernelSource attention_source(const AttentionSpec& spec, const AttentionTile& tile) {
  if (tile.form == Form::fp32) {
    return instantiate("attention_fp32.cuh", "attention_fp32", static_cast<int>(spec.head_dim),
                       static_cast<int>(rows_of(tile)), tile.keys, spec.causal, spec.masked);
  }
  const bool whole = tile.form == Form::whole;
  return instantiate("attention.cuh", whole ? "attention_whole" : "attention_streamed", spec.dtype,
                     static_cast<int>(spec.head_dim), tile.warps, whole ? tile.parts : tile.row_tiles, tile.keys,
                     spec.causal, spec.masked, copy_bytes(spec));
}

Launch<kernels::Attention> attention(KernelLibrary& library, const AttentionSpec& spec, const AttentionTile& tile,
                                     const ClassifiedMask* mask) {
  const DeviceProperties& device = library.device().properties();
  if (const auto reason = refuses_attention(spec, device)) throw_internal("{}", *reason);
  if (const auto reason = refuses_tile(spec, tile, device)) throw_internal("{}: {}", tile.to_string(), *reason);
  const auto shared = static_cast<int>(shared_bytes(spec, tile));
  const std::int64_t width = spec.heads * spec.head_dim;
  Launch<kernels::Attention> launch;
  launch.kernel = &library.get(attention_source(spec, tile), shared);
  launch.shape = {.blocks = blocks_of(spec, tile), .threads = tile.warps * 32, .dynamic_shared_bytes = shared};
  launch.params = {.q_row = 3 * width,
                   .k_row = 3 * width,
                   .v_row = 3 * width,
                   .out_row = width,
                   .batch = spec.batch,
                   .seq = spec.seq,
                   .heads = static_cast<kernels::i32>(spec.heads),
                   .scale = 1.44269504f / std::sqrt(static_cast<float>(spec.head_dim)),
                   .keys = spec.masked ? mask->keys : nullptr,
                   .bitmap = spec.masked ? mask->bitmap : nullptr,
                   .words = spec.masked ? ClassifiedMask::words(spec.seq) : 0};
  return launch;
}

}  // namespace gnomon::cuda
