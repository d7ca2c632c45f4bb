// Blocked attention of one head. The [S, S] scores never exist: a strip of queries meets a block of keys, its
// softmax is taken online (running maximum and sum), and tiles above the diagonal are not computed.
//
// Keys and values are first packed: K transposed into panels whose rows are the keys' lanes, V into rows of whole
// vectors. Packing is where head sizes are padded to vectors and where masked keys disappear, so the inner loops know
// neither.
#if defined(GNOMON_CPU_ATTENTION_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef GNOMON_CPU_ATTENTION_INL
#undef GNOMON_CPU_ATTENTION_INL
#else
#define GNOMON_CPU_ATTENTION_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cpu/rounding.hpp"
#include "cpu/vec_kernels.hpp"
#include "cpu/vec_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gnomon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

constexpr std::int64_t kLanes = HWY_LANES(float);
// 32 registers (AVX-512, NEON): 8 rows x 3 vectors of accumulators; 16 registers: 4 x 2.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr int kStripRows = 8;
constexpr int kTileVectors = 3;
#else
constexpr int kStripRows = 4;
constexpr int kTileVectors = 2;
#endif
constexpr std::int64_t kPanel = kTileVectors * kLanes;  // keys of a packed panel
constexpr std::int64_t kKeyBlock = 480;  // keys of a block: K and V of a block (2 x 480 x 64 x 4 B) stay in a 1 MiB L2

constexpr std::int64_t kQueryBlock = 64;  // each key of a block is read from the L2 for 64 queries instead of 8

static_assert(kKeyBlock % kPanel == 0 && kQueryBlock % kStripRows == 0);

// c[rows][vectors] (+)= a[rows][depth] * b[depth][vectors]: the one inner loop of both products.
template <int kRows, int kVectors>
HWY_INLINE void tile_product(const float* HWY_RESTRICT a, std::int64_t lda, const float* HWY_RESTRICT b,
                             std::int64_t ldb, std::int64_t depth, float* HWY_RESTRICT c, std::int64_t ldc,
                             bool accumulate) {
  const DF d;
  VF acc[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) acc[r][v] = accumulate ? hn::Load(d, c + r * ldc + v * kLanes) : hn::Zero(d);
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    VF row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = hn::Load(d, b + k * ldb + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const VF x = hn::Set(d, a[r * lda + k]);
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(x, row[v], acc[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(acc[r][v], d, c + r * ldc + v * kLanes);
  }
}

template <int kVectors = kTileVectors>
HWY_INLINE void tile_product_of(int vectors, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
                                std::int64_t depth, float* c, std::int64_t ldc, bool accumulate) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) return tile_product_of<kVectors - 1>(vectors, a, lda, b, ldb, depth, c, ldc, accumulate);
  }
  tile_product<kStripRows, kVectors>(a, lda, b, ldb, depth, c, ldc, accumulate);
}

// Four floats from `offset` on of rows 0, 4, 8, ...: one row in each 128-bit block of the vector.
template <class D>
HWY_INLINE hn::Vec<D> load_quads(D d, const float* const* rows, std::int64_t offset) {
  if constexpr (HWY_LANES(float) == 4) {
    return hn::LoadU(d, rows[0] + offset);
  } else {
    const hn::Half<D> half;
    const auto quad = [&](auto self, auto tag, const float* const* r) {
      using Tag = decltype(tag);
      if constexpr (hn::MaxLanes(Tag()) == 4) {
        return hn::LoadU(tag, r[0] + offset);
      } else {
        const hn::Half<Tag> h;
        return hn::Combine(tag, self(self, h, r + hn::MaxLanes(Tag()) / 2), self(self, h, r));
      }
    };
    return hn::Combine(d, quad(quad, half, rows + kLanes / 2), quad(quad, half, rows));
  }
}

// kLanes keys x head_dim floats, transposed to panel[feature][key]. Blocks of 4 features: four vectors hold, in each
// 128-bit block b, the quads of keys 4b+i (i = 0..3); a 4x4 transpose inside the blocks puts the keys side by side.
HWY_INLINE void pack_key_vector(const float* const* rows, std::int64_t head_dim, float* panel) {
  const DF d;
  const hn::Repartition<double, DF> dd;
  std::int64_t f = 0;
  for (; f + 4 <= head_dim; f += 4) {
    VF in[4];
    for (int i = 0; i < 4; ++i) in[i] = load_quads(d, rows + i, f);
    const auto lo01 = hn::BitCast(dd, hn::InterleaveLower(d, in[0], in[1]));
    const auto hi01 = hn::BitCast(dd, hn::InterleaveUpper(d, in[0], in[1]));
    const auto lo23 = hn::BitCast(dd, hn::InterleaveLower(d, in[2], in[3]));
    const auto hi23 = hn::BitCast(dd, hn::InterleaveUpper(d, in[2], in[3]));
    hn::Store(hn::BitCast(d, hn::InterleaveLower(dd, lo01, lo23)), d, panel + (f + 0) * kPanel);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(dd, lo01, lo23)), d, panel + (f + 1) * kPanel);
    hn::Store(hn::BitCast(d, hn::InterleaveLower(dd, hi01, hi23)), d, panel + (f + 2) * kPanel);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(dd, hi01, hi23)), d, panel + (f + 3) * kPanel);
  }
  for (; f < head_dim; ++f) {
    for (std::int64_t l = 0; l < kLanes; ++l) panel[f * kPanel + l] = rows[l][f];
  }
}

// The keys and values that any of the call's queries may see, packed. Layout of `k`: [panel][head_dim][kPanel].
struct PackedHead {
  float* k;
  float* v;      // [key][v_width]
  float* zeros;  // a key row of zeros: padding of the last panel, and masked keys without elision
  std::int64_t v_width;
  std::int64_t keys;  // packed
  bool finite;        // all of v
};

HWY_INLINE std::int64_t key_position(const HeadAttention& a, std::int64_t i) { return a.keys ? a.keys[i] : i; }
HWY_INLINE bool key_is_valid(const HeadAttention& a, std::int64_t position) {
  return !a.key_valid || a.key_valid[position * a.key_valid_stride] != 0;
}

inline void pack_head(const HeadAttention& a, PackedHead& packed) {
  const DF d;
  std::fill_n(packed.zeros, a.head_dim, 0.0f);
  for (std::int64_t i0 = 0; i0 < packed.keys; i0 += kLanes) {
    const float* rows[kLanes];
    for (std::int64_t l = 0; l < kLanes; ++l) {
      const std::int64_t i = i0 + l;
      const bool real = i < packed.keys && key_is_valid(a, key_position(a, i));
      rows[l] = real ? a.k + key_position(a, i) * a.ldk : packed.zeros;
    }
    float* panel = packed.k + i0 / kPanel * (kPanel * a.head_dim) + i0 % kPanel;
    pack_key_vector(rows, a.head_dim, panel);
  }
  const std::int64_t whole = a.head_dim / kLanes * kLanes;
  VF products = hn::Zero(d);  // with 0: NaN once a value is not finite
  for (std::int64_t i = 0; i < packed.keys; ++i) {
    const std::int64_t position = key_position(a, i);
    const float* from = key_is_valid(a, position) ? a.v + position * a.ldv : packed.zeros;
    float* to = packed.v + i * packed.v_width;
    for (std::int64_t f = 0; f < whole; f += kLanes) hn::Store(hn::LoadU(d, from + f), d, to + f);
    if (whole < packed.v_width) {
      std::fill(to + whole, to + packed.v_width, 0.0f);
      for (std::int64_t f = whole; f < a.head_dim; ++f) to[f] = from[f];
    }
    for (std::int64_t f = 0; f < packed.v_width; f += kLanes)
      products = hn::MulAdd(hn::Load(d, to + f), hn::Zero(d), products);
  }
  packed.finite = hn::AllTrue(d, hn::Eq(products, hn::Zero(d)));
}

// The number of packed keys that query row `q` sees (they come first, since packing keeps the order).
HWY_INLINE std::int64_t visible_keys(const HeadAttention& a, std::int64_t q) {
  const std::int64_t n = a.keys ? a.n_keys : a.seq;
  if (!a.causal) return n;
  if (!a.keys) return std::min(q + 1, n);
  return std::upper_bound(a.keys, a.keys + n, static_cast<std::int32_t>(q)) - a.keys;
}

// The online softmax of one row over the block's scores: scores become exp2(score - maximum). Returns the factor that
// what came before must be rescaled by.
struct RowState {
  float maximum;
  float sum;
};

HWY_INLINE float softmax_row_block(float* scores, std::int64_t visible, std::int64_t width, bool first,
                                   RowState& state) {
  const DF d;
  const VF minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
  const std::int64_t whole = visible / kLanes * kLanes;
  const auto tail = hn::FirstN(d, static_cast<std::size_t>(visible - whole));
  VF m = minus_inf;
  for (std::int64_t c = 0; c < whole; c += kLanes) m = hn::Max(m, hn::Load(d, scores + c));
  if (whole < visible) m = hn::Max(m, hn::IfThenElse(tail, hn::Load(d, scores + whole), minus_inf));
  // Where every key so far is masked to -inf, any finite maximum will do: all weights are then 0.
  const float block_max = std::max(hn::GetLane(hn::MaxOfLanes(d, m)), std::numeric_limits<float>::lowest());
  const float maximum = std::max(state.maximum, block_max);
  const VF shift = hn::Set(d, maximum);
  VF sum = hn::Zero(d);
  for (std::int64_t c = 0; c < whole; c += kLanes) {
    const VF e = exp2_nonpositive(d, hn::Sub(hn::Load(d, scores + c), shift));
    hn::Store(e, d, scores + c);
    sum = hn::Add(sum, e);
  }
  std::int64_t c = whole;
  if (whole < visible) {
    const VF e = hn::IfThenElseZero(tail, exp2_nonpositive(d, hn::Sub(hn::Load(d, scores + whole), shift)));
    hn::Store(e, d, scores + whole);
    sum = hn::Add(sum, e);
    c += kLanes;
  }
  for (; c < width; c += kLanes) hn::Store(hn::Zero(d), d, scores + c);
  const float block_sum = hn::GetLane(hn::SumOfLanes(d, sum));
  const float rescale = first ? 1.0f : hn::GetLane(exp2_nonpositive(d, hn::Set(d, state.maximum - maximum)));
  state.sum = first ? block_sum : state.sum * rescale + block_sum;
  state.maximum = maximum;
  return rescale;
}

HWY_INLINE void scale_row(const float* from, float factor, float* to, std::int64_t n) {
  const DF d;
  const VF f = hn::Set(d, factor);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, from + i), f), d, to + i);
  for (; i < n; ++i) to[i] = from[i] * factor;
}

// A block of queries that share each block of keys while it is in the L2; strips of kStripRows are its inner unit.
struct QueryBlock {
  float* q;       // [kQueryBlock][head_dim], scaled by scale * log2(e)
  float* scores;  // [kStripRows][kKeyBlock], of the strip at work
  float* out;     // [kQueryBlock][v_width]
  std::int64_t first, rows;
  RowState state[kQueryBlock];
  std::int64_t visible[kQueryBlock];  // rows past the last repeat it
};

// Strip `r0` of the block against the keys [k0, k0 + keys).
inline void attend_strip(const HeadAttention& a, const PackedHead& packed, QueryBlock& b, std::int64_t r0,
                         std::int64_t k0, std::int64_t keys) {
  const std::int64_t width = round_up(keys, kLanes);
  const float* q = b.q + r0 * a.head_dim;
  float* const strip_out = b.out + r0 * packed.v_width;
  for (std::int64_t c = 0; c < width; c += kPanel) {
    const int vectors = static_cast<int>(std::min(kPanel, width - c) / kLanes);
    tile_product_of(vectors, q, a.head_dim, packed.k + (k0 + c) * a.head_dim, kPanel, a.head_dim, b.scores + c,
                    kKeyBlock,
                    /*accumulate=*/false);
  }
  for (std::int64_t c = 0; a.key_valid && c < keys; ++c) {
    if (key_is_valid(a, k0 + c)) continue;
    for (std::int64_t r = 0; r < kStripRows; ++r) b.scores[r * kKeyBlock + c] = -std::numeric_limits<float>::infinity();
  }
  const auto seen_by = [&](std::int64_t r) { return std::clamp<std::int64_t>(b.visible[r0 + r] - k0, 0, keys); };
  for (std::int64_t r = 0; r < kStripRows; ++r) {
    const float rescale =
        softmax_row_block(b.scores + r * kKeyBlock, seen_by(r), width, /*first=*/k0 == 0, b.state[r0 + r]);
    if (rescale != 1.0f)
      scale_row(strip_out + r * packed.v_width, rescale, strip_out + r * packed.v_width, packed.v_width);
  }
  // A weight of 0 does not hide a value that is not finite (0 * NaN is NaN). Where there is one, only the keys that the
  // whole strip sees are multiplied together, and each row adds what else it sees.
  const std::int64_t together = packed.finite ? keys : seen_by(0);
  const float* const values = packed.v + k0 * packed.v_width;
  const int v_vectors = static_cast<int>(packed.v_width / kLanes);
  for (int v = 0; v < v_vectors; v += kTileVectors) {
    tile_product_of(std::min(kTileVectors, v_vectors - v), b.scores, kKeyBlock, values + v * kLanes, packed.v_width,
                    together, strip_out + v * kLanes, packed.v_width, /*accumulate=*/k0 > 0);
  }
  for (std::int64_t r = 0; r < kStripRows && !packed.finite; ++r) {
    for (std::int64_t c = together; c < seen_by(r); ++c) {
      for (std::int64_t f = 0; f < packed.v_width; ++f) {
        strip_out[r * packed.v_width + f] += b.scores[r * kKeyBlock + c] * values[c * packed.v_width + f];
      }
    }
  }
}

inline void attend_block(const HeadAttention& a, const PackedHead& packed, QueryBlock& b) {
  const float to_log2 = a.scale * 1.4426950408889634f;
  const std::int64_t strips = (b.rows + kStripRows - 1) / kStripRows;
  for (std::int64_t r = 0; r < strips * kStripRows; ++r) {
    float* q = b.q + r * a.head_dim;
    if (r < b.rows)
      scale_row(a.q + (b.first + r) * a.ldq, to_log2, q, a.head_dim);
    else
      std::fill_n(q, a.head_dim, 0.0f);
    b.state[r] = {std::numeric_limits<float>::lowest(), 0.0f};
    b.visible[r] = visible_keys(a, b.first + std::min(r, b.rows - 1));
  }
  const auto computed = [&](std::int64_t strip) {  // keys that a strip is multiplied with
    return a.causal && a.causal_skip ? b.visible[strip * kStripRows + kStripRows - 1] : packed.keys;
  };
  const std::int64_t most = computed(strips - 1);
  for (std::int64_t k0 = 0; k0 < most; k0 += kKeyBlock) {
    for (std::int64_t strip = 0; strip < strips; ++strip) {
      const std::int64_t keys = std::min(kKeyBlock, computed(strip) - k0);
      if (keys > 0) attend_strip(a, packed, b, strip * kStripRows, k0, keys);
    }
  }
  for (std::int64_t r = 0; r < b.rows; ++r) {
    float* const to = a.out + (b.first + r) * a.ldo;
    // No key met, or none of weight: output 0.
    if (computed(r / kStripRows) == 0 || b.state[r].sum == 0.0f)
      std::fill_n(to, a.head_dim, 0.0f);
    else
      scale_row(b.out + r * packed.v_width, 1.0f / b.state[r].sum, to, a.head_dim);
  }
}

std::int64_t head_attention_scratch(std::int64_t seq, std::int64_t head_dim) {
  const std::int64_t v_width = round_up(head_dim, kLanes);
  const std::int64_t k = round_up(seq, kPanel) * head_dim;
  const std::int64_t queries = kQueryBlock * (head_dim + v_width) + kStripRows * kKeyBlock;
  return round_up(k, kLanes) + seq * v_width + round_up(head_dim, kLanes) + round_up(queries, kLanes);
}

void head_attention(const HeadAttention& a) {
  PackedHead packed;
  packed.v_width = round_up(a.head_dim, kLanes);
  packed.keys = a.causal && a.causal_skip ? visible_keys(a, a.q_end - 1) : (a.keys ? a.n_keys : a.seq);
  float* next = a.scratch;
  const auto take = [&next](std::int64_t floats) {
    float* at = next;
    next += round_up(floats, kLanes);
    return at;
  };
  packed.k = take(round_up(a.seq, kPanel) * a.head_dim);
  packed.v = take(a.seq * packed.v_width);
  packed.zeros = take(a.head_dim);
  QueryBlock block;
  block.q = take(kQueryBlock * a.head_dim);
  block.scores = take(kStripRows * kKeyBlock);
  block.out = take(kQueryBlock * packed.v_width);
  pack_head(a, packed);
  for (block.first = a.q_begin; block.first < a.q_end; block.first += kQueryBlock) {
    block.rows = std::min(kQueryBlock, a.q_end - block.first);
    attend_block(a, packed, block);
  }
}

}  // namespace gnomon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
