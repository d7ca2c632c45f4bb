// A warpgroup of the wide form: its place, the layer's vectors, products of the streamed weights with operands in
// shared memory, and the panels that it makes of what comes of them.
#pragma once

#include "resident_split_tokens.cuh"
#include "resident_wide_stream.cuh"

namespace gnomon::kernels::resident {

template <typename S>
struct WideProducts {
  using barriers = WideBarriers<S>;
  static constexpr int kValues = S::l.rows / 2, kPacked = kValues / 2, kPanel = S::l.panel_bytes;

  const Call& p;
  const int group;
  u32 progress = 0;     // twice the sublayers done, and the parity of the statistics exchanged so far
  float x[2][kValues];  // 128 features of the residual stream
  float d[kValues];  // every other product: of more accumulators, even at other times, the assembler runs them singly

  __device__ __forceinline__ WideProducts(const Call& call, int of) : p(call), group(of) {}

  static __device__ __forceinline__ int rank() { return static_cast<int>(cluster_rank_anew()); }
  static __device__ __forceinline__ u32 thread() { return static_cast<u32>(thread_anew()); }
  static __device__ __forceinline__ int warp() { return static_cast<int>(thread() % 128 / 32); }  // of the warpgroup
  static __device__ __forceinline__ int lane() { return static_cast<int>(thread() % 32); }
  static __device__ __forceinline__ void meet() { named_barrier(1, 128 * S::l.kGroups); }
  __device__ __forceinline__ void meet_group() const { named_barrier(2 + group, 128); }
  static __device__ __forceinline__ bool elected() { return threadIdx.x % 128 == 0; }  // of the warpgroup

  static __device__ __forceinline__ u32 operand_panel(int i) { return shared_base() + i * kPanel; }
  static __device__ __forceinline__ u32 exchange_panel(int i) { return shared_base() + S::l.exchange_at + i * kPanel; }

  // --- the layer's vectors: the thread's two features of a panel, which begins at `feature`

  __device__ __forceinline__ const float* layer_vectors() const {
    return p.vectors + i64{anew(progress) / 4} * S::l.layer_floats;
  }
  __device__ __forceinline__ float2 doubled(int at, int feature) const {
    const float* v = layer_vectors() + at + 2 * (feature + 16 * warp()) + lane() / 8 * 4 + lane() / 4 % 2;
    return {v[0], v[16]};
  }
  __device__ __forceinline__ float2 single(int at, int feature) const {
    const float* v = layer_vectors() + at + feature + 16 * warp() + lane() / 8 * 4 + lane() / 4 % 2;
    return {v[0], v[2]};
  }
  __device__ __forceinline__ int first_feature(int tile) const {
    return 64 * (rank() * S::l.panels + 2 * group + tile);
  }
  __device__ __forceinline__ void add_to_residual(int at) {
#pragma unroll
    for (int t = 0; t < 2; ++t) add_to_tokens(x[t], single(at, first_feature(t)));
  }

  // --- products

  // Tile kTile of a product's eight. What stage it is in and in which of a barrier's phases it comes are constants.
  template <int kTile>
  __device__ __forceinline__ u32 next_tile() const {
    const int stage = kTile % S::l.kGroupStages * S::l.kGroups + group;
    mbarrier::wait(barriers::full(stage), kTile / S::l.kGroupStages % 2);
    return shared_base() + S::l.ring_at + stage * S::l.stage_bytes;
  }
  template <int kTile>
  __device__ __forceinline__ void release() const {
    if (lane() == 0) mbarrier::arrive(barriers::empty(kTile % S::l.kGroupStages * S::l.kGroups + group));
  }

  struct Nothing {
    __device__ __forceinline__ void operator()(int) const {}
  };

  // issue(tile, its operand), then beside(tile): of a product's tiles, and where kAfterAnother says so of two products,
  // one is always on its way, the last when this returns. In beside(0) the product before is done. The tile's number is
  // a constant once inlined.
  template <bool kAfterAnother, int kTile = 0, typename Issue, typename Beside>
  __device__ __forceinline__ void tiles(Issue&& issue, Beside&& beside) const {
    const u64 tile = operand<128>(anew(next_tile<kTile>()));
    wgmma::begin();
    issue(kTile, tile);
    wgmma::commit();
    if constexpr (kTile > 0) beside(kTile);  // under the tile before, too
    if constexpr (kAfterAnother || kTile > 0) {
      wgmma::wait<1>();
      release<(kTile + 7) % 8>();
    }
    if constexpr (kTile == 0) beside(kTile);
    if constexpr (kTile < 7) tiles<kAfterAnother, kTile + 1>(issue, beside);
  }
  __device__ __forceinline__ void finish() const {
    wgmma::wait<0>();
    release<7>();
  }

  // d = W * operand: 64 outputs.
  template <bool kAfterAnother = false, typename Beside = Nothing>
  __device__ __forceinline__ void multiply(Beside&& beside = {}) {
    const u64 from = operand<128>(anew(operand_panel(0)));
    wgmma::settle(d);
    tiles<kAfterAnother>(
        [&](int i, u64 tile) {
          const u64 tokens = further(from, i * kPanel);
          if (i == 0) {
            wgmma::multiply_shared<false>(d, tile, tokens);
          } else {
            wgmma::multiply_shared<true>(d, tile, tokens);
          }
#pragma unroll
          for (int k = 1; k < 4; ++k) wgmma::multiply_shared<true>(d, further(tile, 32 * k), further(tokens, 32 * k));
        },
        beside);
  }
  __device__ __forceinline__ void finish_multiply() {
    finish();
    wgmma::settle(d);
  }

  // x += W * the exchanged panels, the warpgroup's 128 outputs in turns.
  template <bool kAfterAnother, typename Beside = Nothing>
  __device__ __forceinline__ void multiply_exchanged(Beside&& beside = {}) {
    const u64 from = operand<128>(anew(exchange_panel(0)));
    settle_residual();
    tiles<kAfterAnother>(
        [&](int i, u64 tile) {
          const u64 tokens = further(from, i / 2 * kPanel);
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            wgmma::multiply_shared<true>(x[i % 2], further(tile, 32 * k), further(tokens, 32 * k));
          }
        },
        beside);
  }
  // The accumulator's registers are free until the next product.
  __device__ __forceinline__ void forget() {
#pragma unroll
    for (int i = 0; i < kValues; ++i) asm volatile("" : "=f"(d[i]));
  }
  __device__ __forceinline__ void settle_residual() { wgmma::settle(x[0]), wgmma::settle(x[1]); }

  // --- panels

  // The warpgroup's 64 features of all tokens, packed in pairs of tokens.
  __device__ __forceinline__ void store_panel(const u32* a, u32 at) const {
    const u32 t = thread(), row = t % 32 / 16 * 8 + t % 8, chunk = t % 128 / 32 * 2 + t / 8 % 2;
    at += row * 128 + (chunk ^ t % 8) * 16;
#pragma unroll
    for (int i = 0; i < S::l.rows / 16; ++i) store_matrices_transposed(at + 16 * i * 128, a + 4 * i);
    // The last eight tokens with the eight before them, once more.
    if constexpr (S::l.rows % 16 != 0) store_matrices_transposed(at + (S::l.rows - 16) * 128, a + kPacked - 4);
  }

  static __device__ __forceinline__ void send(u32 to, u32 from, u32 bytes, u32 barrier) {
    const u32 other = rank() ^ 1;
    bulk_send(address_in(other, to), from, bytes, address_in(other, barrier));
  }

  // The warpgroup's panel to both CTAs, by one thread, when all have stored and published it.
  __device__ __forceinline__ void give_exchanged() const {
    mbarrier::arrive_expecting(barriers::exchange_full(), kPanel);  // what the other CTA gives
    send(exchange_panel(2 + group), exchange_panel(group), kPanel, barriers::exchange_full());
  }
  __device__ __forceinline__ void free_exchanged() const {
    meet_group();
    const u32 t = threadIdx.x % 128;
    if (t < 2) mbarrier::arrive_remote(address_in(t, barriers::exchange_free()));
  }

  // One of the warpgroup's two panels of the operand, to both CTAs. The other one has read what lies there: it has sent
  // its statistics since, or has just begun.
  __device__ __forceinline__ void give_operand(const u32* a, int tile, bool is_read = true) const {
    const int panel = 2 * group + tile;
    store_panel(a, operand_panel(panel));
    publish_shared_writes();
    meet_group();
    if (!elected() || !is_read) return;
    mbarrier::arrive_expecting(barriers::operand_full(), kPanel);
    send(operand_panel(S::l.panels + panel), operand_panel(panel), kPanel, barriers::operand_full());
  }
};

}  // namespace gnomon::kernels::resident
