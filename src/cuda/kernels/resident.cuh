// The whole forward pass of a small stack in one kernel. A warpgroup holds 64 tokens' residual stream in registers, in
// fp32, through all layers; the feed-forward block's products chain through registers, as the heads' outputs do where
// there is room, Q, K and V through shared memory, and nothing of a layer goes to device memory. Weights stream past
// (resident_stream.cuh). A grid of clusters takes sequences in turn.
#pragma once

#include "resident_stream.cuh"
#include "resident_tile.cuh"
#include "vec.cuh"

namespace gnomon::kernels::resident {

// Of a thread, when there are three warpgroups: 2 * 240 + 24 of the 512 that each lane of a scheduler has.
constexpr int kConsumerRegisters = 240;

// One warpgroup's 64 tokens and what it shares with the sequence's other warpgroups.
template <typename S>
struct Group {
  static constexpr int kRow = S::c.model / 2;      // floats of the thread's two rows
  static constexpr int kOperand = S::c.model / 4;  // registers of the same as an A operand

  using barriers = Barriers<S>;

  Consumer<S> stream;
  int tile;  // of the sequence
  int warp;  // of the group
  int slot;  // in the cluster: of all its warpgroups

  __device__ __forceinline__ explicit Group(int group) {
    slot = static_cast<int>(cluster_rank()) * S::c.groups + group;
    tile = slot % S::l.tiles;
    warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x % 128 / 32), 0);
  }

  // Q of this tile, then the heads' outputs.
  __device__ __forceinline__ u32 queries() const {
    constexpr u32 kAt = S::l.queries_at;
    if constexpr (S::c.groups == 1) return shared_base() + kAt;
    return shared_base() + kAt + thread_anew() / 128 * S::l.queries_bytes;
  }

  // The sequence's first warpgroup in the cluster, and its K and V: constants where there is one sequence.
  __device__ __forceinline__ int first_slot() const {
    if constexpr (S::c.cluster * S::c.groups == S::l.tiles) return 0;
    return slot - tile;
  }
  __device__ __forceinline__ u32 kv() const {
    if constexpr (S::l.local_sequences == 1) return shared_base();
    return shared_base() + slot % S::c.groups / S::l.tiles * (2 * S::l.panels * S::l.panel_bytes);
  }

  float x[kRow];

  // --- products with the streamed weights: a block of [model][model], in tiles of [model][64]

  // D += A * W^T
  template <bool kAccumulate>
  __device__ __forceinline__ void multiply(float (&d)[kRow], const u32 (&a)[kOperand], int block) {
    if constexpr (kAccumulate) wgmma::settle(d);
#pragma unroll
    for (int unit = 0; unit < S::l.units; ++unit) {
      const u64 weights = stream.next_tile(block * S::l.units + unit);
      wgmma::begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (!kAccumulate && unit == 0 && k == 0) {
          wgmma::multiply<false, false>(d, a, weights);
        } else {
          wgmma::multiply<true, false>(d, a + 16 * unit + 4 * k, further(weights, k * 32));
        }
      }
    }
    wgmma::commit();
  }

  // The same with the heads' outputs for A.
  __device__ __forceinline__ void multiply_outputs(float (&d)[kRow]) {
    const u64 outputs = operand<S::l.panel_row_bytes>(queries());
    wgmma::settle(d);
#pragma unroll
    for (int unit = 0; unit < S::l.units; ++unit) {
      const u64 weights = stream.next_tile(3 * S::l.units + unit);
      wgmma::begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        wgmma::multiply_shared<true>(d, further(outputs, in_queries(64 * unit + 16 * k)), further(weights, k * 32));
      }
    }
    wgmma::commit();
  }

  __device__ __forceinline__ void release_block() {
#pragma unroll
    for (int unit = 0; unit < S::l.units; ++unit) stream.release_tile();
  }

  // --- Q, K and V

  // Where a feature begins in a row of panels.
  __host__ __device__ static constexpr u32 in_keys(int feature) {
    return feature / S::l.panel_features * S::l.panel_bytes + feature % S::l.panel_features * 2;
  }
  __host__ __device__ static constexpr u32 in_queries(int feature) {
    return feature / S::l.panel_features * (64 * S::l.panel_row_bytes) + feature % S::l.panel_features * 2;
  }

  __device__ __forceinline__ u32 owner_barrier(int key_tile) const {
    const int slot = first_slot() + key_tile;
    return address_in(slot / S::c.groups, barriers::keys_free(slot % S::c.groups));
  }

  __device__ __forceinline__ u32 ready_barrier(int key_tile) const {
    return barriers::keys_ready(S::c.groups < S::l.tiles ? key_tile : first_slot() % S::c.groups + key_tile);
  }

  // Sixteen features of this warp's 16 rows to a panel: `at` is the address of the warp's first row at the first
  // feature.
  __device__ __forceinline__ void store_features(const u32* a, u32 at) const {
    const u32 row = threadIdx.x % 16 * S::l.panel_row_bytes;
    store_matrices(at + row + threadIdx.x % 32 / 16 * 16 ^ (swizzle<S::l.panel_row_bytes>(row) ^ row), a);
  }

  // K, or V: panels that begin at `first`.
  __device__ __forceinline__ void store_keys(u32 (&a)[kOperand], u32 first) const {
    if constexpr (S::c.masked) {  // a key that nobody sees adds nothing, whatever it holds: 0 * NaN would
      const bool valid[2] = {row_valid(0), row_valid(1)};
#pragma unroll
      for (int i = 0; i < kOperand; ++i) a[i] = valid[i % 2] ? a[i] : 0;
    }
    if (64 * tile + 16 * warp >= S::l.keys) return;
#pragma unroll
    for (int g = 0; g < S::c.model / 16; ++g) {
      store_features(a + 4 * g, first + in_keys(16 * g) + (64 * tile + 16 * warp) * S::l.panel_row_bytes);
    }
  }

  // kSize * 4 features, from `first` on, of Q or of the heads' outputs.
  template <int kSize>
  __device__ __forceinline__ void store_queries(const u32 (&a)[kSize], u32 first) const {
#pragma unroll
    for (int g = 0; g < kSize / 4; ++g) {
      store_features(a + 4 * g, first + in_queries(16 * g) + 16 * warp * S::l.panel_row_bytes);
    }
  }

  // What the group's warps stored, its products may read.
  __device__ __forceinline__ void publish_queries() const {
    publish_shared_writes();
    named_barrier(group_barrier(), 128);
  }
  __device__ __forceinline__ u32 group_barrier() const { return 1 + (first_slot() + tile) % S::c.groups; }

  // The sequence's other warpgroups may read this tile's keys; those in other CTAs get a copy.
  __device__ __forceinline__ void publish_keys() {
    publish_shared_writes();
    if constexpr (S::c.groups >= S::l.tiles) {
      __syncwarp();
      if (threadIdx.x % 32 == 0) mbarrier::arrive(ready_barrier(tile));
    } else {
      named_barrier(1, 128);
      if (threadIdx.x % 32 == 0) mbarrier::arrive(ready_barrier(tile));
      const int other = 1 - tile;
      if (threadIdx.x == 0 && (!S::c.causal || other > tile)) {
        const u32 rank = first_slot() + other, at = kv() + 64 * tile * S::l.panel_row_bytes;
        const u32 bytes = keys_of(tile) * S::l.panel_row_bytes, barrier = address_in(rank, ready_barrier(tile));
        for (int panel = 0; panel < 2 * S::l.panels; ++panel) {
          const u32 from = at + panel * S::l.panel_bytes;
          bulk_send(address_in(rank, from), from, bytes, barrier);
        }
      }
    }
  }

  static __device__ __forceinline__ int keys_of(int key_tile) {
    constexpr int kFirst = S::l.tile_keys[0], kSecond = S::l.tile_keys[1];
    return key_tile == 0 ? kFirst : kSecond;
  }

  __device__ __forceinline__ void expect_keys() {
    if constexpr (S::c.groups < S::l.tiles) {
      const int other = 1 - tile;
      if (threadIdx.x == 0 && (!S::c.causal || other < tile)) {
        mbarrier::arrive_expecting(ready_barrier(other), 2 * S::l.panels * keys_of(other) * S::l.panel_row_bytes);
      }
    }
  }

  __device__ __forceinline__ void wait_for_keys() {
#pragma unroll
    for (int t = 0; t < S::l.tiles; ++t) {
      if (!S::c.causal || t <= tile) mbarrier::wait(ready_barrier(t), stream.parity());
    }
  }

  __device__ __forceinline__ void release_keys() {
    if (threadIdx.x % 32 == 0) {
      for (int t = 0; t < S::l.tiles; ++t) {
        if (!S::c.causal || t <= tile) mbarrier::arrive_remote(owner_barrier(t));
      }
    }
  }

  // What a product gave, packed, with biases if it has them: these come in halves, since a mask takes registers.
  // Without a bias a zero is added: where sums are packed as they are, the assembler keeps them beside the next
  // product's and has too few registers.
  template <bool kBiased>
  __device__ __forceinline__ void finish(u32 (&features)[kOperand], float (&d)[kRow], u32 biases) {
    float bias[kRow / 4];
    float zero = 0;
    if constexpr (kBiased) {
      load_vector(bias, biases);
    } else {
      zero = __int_as_float(static_cast<int>(anew(0)));
    }
    wgmma::wait<0>();
    wgmma::settle(d);
    release_block();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first = half * kRow / 2;
      if (kBiased && half == 1) load_vector(bias, biases + 8 * kRow);
#pragma unroll
      for (int i = 0; i < kRow / 2; ++i) d[first + i] += kBiased ? bias[i / 4 * 2 + i % 2] : zero;
#pragma unroll
      for (int i = first / 2; i < first / 2 + kRow / 4; ++i) features[i] = pack2<f16>(d[2 * i], d[2 * i + 1]);
    }
    wgmma::settle<kOperand>(features);
  }

  // K, V and Q to shared memory, each under the next one's product where registers suffice. A bias of K adds the same
  // to all scores of a row: softmax does not see it, and it is left out where its memory is wanted.
  __device__ __forceinline__ void project(const u32 (&a)[kOperand], u32 vectors) {
    constexpr bool kKeysUnder = !S::c.masked, kValuesUnder = kKeysUnder && S::c.groups == 2;
    float d[kRow];
    u32 features[kOperand];
    expect_keys();
    add_to_rows(x, vectors + 4 * S::l.bias_o);
    multiply<false>(d, a, 0);
    finish<!S::l.summed>(features, d, vectors + 4 * S::l.bias_k);
    if constexpr (kKeysUnder) multiply<false>(d, a, 1);
    mbarrier::wait(barriers::keys_free((first_slot() + tile) % S::c.groups), stream.parity() ^ 1);
    store_keys(features, kv());
    if constexpr (!kKeysUnder) multiply<false>(d, a, 1);
    finish<true>(features, d, vectors + 4 * S::l.bias_v);
    if constexpr (kValuesUnder) multiply<false>(d, a, 2);
    store_keys(features, kv() + S::l.panels * S::l.panel_bytes);
    if constexpr (!kValuesUnder) multiply<false>(d, a, 2);
    publish_keys();
    finish<true>(features, d, vectors + 4 * S::l.bias_q);
    store_queries(features, queries());
    publish_queries();
  }

  // --- attention

  // Panels of heads wider than a panel adjoin, so that one step from head to head serves all.
  static constexpr u32 kQueryHead = 64 * 2 * S::l.head, kKeyHead = S::l.keys * 2 * S::l.head;

  template <int kKeys>
  __device__ __forceinline__ void score(float (&s)[kKeys / 2], int head) const {
    const u64 q = further(operand<S::l.panel_row_bytes>(queries()), head * kQueryHead);
    const u64 k = further(operand<S::l.panel_row_bytes>(kv()), head * kKeyHead);
    wgmma::begin();
    wgmma::multiply_shared<false>(s, q, k);
#pragma unroll
    for (int feature = 16; feature < S::l.head; feature += 16) {
      wgmma::multiply_shared<true>(s, further(q, in_queries(feature)), further(k, in_keys(feature)));
    }
    wgmma::commit();
  }

  // With a column of ones after the head's features, for the sums, or without.
  template <int kKeys, int kColumns>
  __device__ __forceinline__ void weigh(float (&o)[kColumns / 2], const u32 (&p)[kKeys / 4], int head) const {
    const u32 values = S::l.panels * S::l.panel_bytes + head * kKeyHead;
    const u32 next = kColumns > S::l.head ? shared_base() + S::l.ones_at - (kv() + values) : S::l.panel_bytes;
    const u64 v = further(operand<S::l.panel_row_bytes>(kv(), next), values);
    wgmma::begin();
    wgmma::multiply<false, true>(o, p, v);
#pragma unroll
    for (int key = 16; key < kKeys; key += 16) {
      wgmma::multiply<true, true>(o, p + key / 4, further(v, key * S::l.panel_row_bytes));
    }
    wgmma::commit();
  }

  // Each head's output replaces its queries. Where registers allow, the next head's scores are computed beside it.
  template <int kTile>
  __device__ __forceinline__ void attend() const {
    constexpr int kKeys = S::l.keys_seen[kTile];
    constexpr bool kAhead = !S::l.summed && kKeys / 2 + kKeys / 4 + S::l.head / 2 + S::c.model / 2 <= 168;
    const auto late = [](int block) { return 8 * block + 8 > S::c.seq || (S::c.causal && 8 * block + 7 > 64 * kTile); };
    const VisibleKeys<S::c.masked> visible = visible_keys();
    float s[kKeys / 2];
    score<kKeys>(s, 0);
    wgmma::wait<0>();
#pragma unroll 1
    for (int head = 0; head < S::c.heads; ++head) {
      const int next =
          head + 1 < S::c.heads ? head + 1 : 0;  // the last scores are for nothing: no branch among products
      wgmma::settle(s);
      float inverse[2];
      u32 p[kKeys / 4];
      softmax_rows(p, s, visible, inverse, late);
      float o[S::l.head / 2];
      weigh<kKeys, S::l.head>(o, p, head);
      if constexpr (kAhead) {
        score<kKeys>(s, next);
        wgmma::wait<1>();
      } else {
        wgmma::wait<0>();
      }
      wgmma::settle(o);
      scale_rows(o, inverse);
      u32 outputs[S::l.head / 4];
      pack_rows(outputs, o);
      store_queries(outputs, queries() + head * kQueryHead);
      if constexpr (!kAhead) score<kKeys>(s, next);
      wgmma::wait<0>();
    }
  }

  // The same for all heads of a causal stack at once, into registers, by exponentials without a shift. False where a
  // row's sum shows that one was needed.
  template <int kTile>
  __device__ __forceinline__ bool attend_plainly(u32 (&outputs)[kOperand]) const {
    constexpr int kKeys = S::l.keys_seen[kTile], kHead = S::l.head;
    constexpr int kMasks = (kKeys - 64 * kTile) / 8;
    u32 seen[kMasks] = {};
    const int last = token(0) - threadIdx.x % 4 * 2;  // rows that don't exist see what doesn't either
#pragma unroll
    for (int i = 0; i < kMasks; ++i) {
      const int key = 64 * kTile + 8 * i;
      seen[i] = anew((key <= last ? 0xffffu : 0u) | (key + 1 <= last ? 0xffff0000u : 0u));
    }
    bool lost = false;
    float s[kKeys / 2];
    score<kKeys>(s, 0);
    wgmma::wait<0>();
#pragma unroll
    for (int head = 0; head < S::c.heads; ++head) {
      wgmma::settle(s);
      u32 p[kKeys / 4];
      plain_exponentials(p, s, seen);
      float o[kHead / 2 + 4];
      weigh<kKeys, kHead + 8>(o, p, head);
      if (head + 1 < S::c.heads) {
        score<kKeys>(s, head + 1);
        wgmma::wait<1>();
      } else {
        wgmma::wait<0>();
      }
      wgmma::settle(o);
      float inverse[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float sum = o[kHead / 2 + 2 * r];
        lost |= !(sum >= kLeastSum && sum <= kMostSum);
        inverse[r] = __fdividef(1.0f, sum);
      }
#pragma unroll
      for (int i = 0; i < kHead / 2; i += 2) {
        const float scale = inverse[i % 4 / 2];
        outputs[(head * kHead / 2 + i) / 2] = pack2<f16>(o[i] * scale, o[i + 1] * scale);
      }
      wgmma::wait<0>();
    }
    wgmma::settle<kOperand>(outputs);
    return !lost;
  }

  template <int kTile>
  __device__ __forceinline__ void attend_and_project() {
    if constexpr (S::l.summed) {
      u32 outputs[kOperand];
      const bool right = attend_plainly<kTile>(outputs);
      if (!named_barrier_any(group_barrier(), 128, !right)) {
        release_keys();
        multiply<true>(x, outputs, 3);
        wgmma::wait<0>();
        wgmma::settle(x);
        return;
      }
    }
    attend<kTile>();
    release_keys();
    publish_queries();
    multiply_outputs(x);
    wgmma::wait<0>();
    wgmma::settle(x);
  }

  // x += Wo * attention + bo
  __device__ __forceinline__ void attention_block(const u32 (&a)[kOperand], u32 vectors) {
    project(a, vectors);
    wait_for_keys();
    if constexpr (S::l.tiles == 1) {
      attend_and_project<0>();
    } else if (tile == 0) {
      attend_and_project<0>();
    } else {
      attend_and_project<1>();
    }
    release_block();
  }

  // d += W1 * a, of 64 hidden units: a tile holds their rows, in parts of 64 columns.
  __device__ __forceinline__ void multiply_step(float (&d)[32], const u32 (&a)[kOperand], int tile) {
    wgmma::settle(d);
    const u64 weights = stream.next_tile(tile);
    wgmma::begin();
#pragma unroll
    for (int k = 0; k < S::c.model / 16; ++k) {
      wgmma::multiply<true, false>(d, a + 4 * k, further(weights, k / 4 * (64 * 128) + k % 4 * 32));
    }
  }

  // x += W2 * act(W1 * a + b1) + b2, by steps of 64 hidden units. While one step's are activated, the next one's sums
  // and the last one's second product are computed. The assembler does not see through a loop which product is waited
  // for, and would run them one by one: between rounds none runs.
  __device__ __forceinline__ void feed_forward_block(const u32 (&a)[kOperand], u32 vectors) {
    constexpr int kSteps = S::l.steps_together;
    u32 biases = vectors + 4 * S::l.bias_1;
#pragma unroll 1
    for (int round = 0; round < S::l.steps / kSteps; ++round) {
      const int first = 4 * S::l.units + round * 2 * kSteps;  // of the round's tiles
      float d[2][32];
      u32 hidden[2][16];
      wgmma::settle(x);
#pragma unroll
      for (int i = 0; i < kSteps && i < 2; ++i) {
        set_rows(d[i], biases + 512 * i);
        multiply_step(d[i], a, first + i);
        wgmma::commit();
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const bool more = i + 2 < kSteps;
        const int tile = first + (kSteps == 1 ? 1 : i + 1 < kSteps ? 2 + 2 * i : 1 + 2 * i);  // of the second product
        kSteps > 1 ? wgmma::wait<1>() : wgmma::wait<0>();
        wgmma::settle(d[i % 2]);
        stream.release_tile();
        if (i >= 2) stream.release_tile();
        activate_step(hidden[i % 2], d[i % 2], biases + 512 * (i + 2), more);
        const u64 weights = stream.next_tile(tile);
        wgmma::begin();
#pragma unroll
        for (int k = 0; k < 4; ++k) wgmma::multiply<true, false>(x, hidden[i % 2] + 4 * k, further(weights, k * 32));
        if (more) multiply_step(d[i % 2], a, tile + 1);
        wgmma::commit();
      }
      wgmma::wait<0>();
      wgmma::settle(x);
      stream.release_tile();
      if (kSteps > 1) stream.release_tile();
      biases += 512 * kSteps;
    }
    add_to_rows(x, vectors + 4 * S::l.bias_2);
  }

  // The activations of d, into whose registers the biases of the step after next are loaded as early as it is free.
  static __device__ __forceinline__ void activate_step(u32 (&hidden)[16], float (&d)[32], u32 biases, bool more) {
    if constexpr (S::c.paired_activation) {
      pack_rows(hidden, d);
      if (more) set_rows(d, biases);
      activate_pairs<S::c.activation>(hidden);
      wgmma::settle<16>(hidden);
    } else {
      activate_rows<S::c.activation, false>(hidden, d);
      if (more) set_rows(d, biases);
    }
  }

  __device__ __forceinline__ void norm(u32 vectors, int gain, int shift, float eps) {
    normalise_rows(x, x, vectors + 4 * gain, vectors + 4 * shift, eps);
  }

  __device__ __forceinline__ void operand_of(u32 (&a)[kOperand], u32 vectors, int gain, int shift, float eps) const {
    if constexpr (S::c.pre_norm) {
      float y[kRow];
      normalise_rows(y, x, vectors + 4 * gain, vectors + 4 * shift, eps);
      pack_rows(a, y);
    } else {
      pack_rows(a, x);
    }
  }

  __device__ __forceinline__ void layer(float eps) {
    const u32 vectors = stream.next_vectors();
    u32 a[kOperand];
    operand_of(a, vectors, S::l.gain1, S::l.shift1, eps);
    attention_block(a, vectors);
    if constexpr (!S::c.pre_norm) norm(vectors, S::l.gain1, S::l.shift1, eps);
    operand_of(a, vectors, S::l.gain2, S::l.shift2, eps);
    feed_forward_block(a, vectors);
    if constexpr (!S::c.pre_norm) norm(vectors, S::l.gain2, S::l.shift2, eps);
    stream.end_layer();
  }

  // --- the ends

  __device__ __forceinline__ int token(int row) const {
    const int t = thread_anew() % 128;
    return 64 * tile + t / 32 * 16 + t % 32 / 4 + 8 * row;
  }
  // Of the thread's value x[i], counted from its first one.
  static __device__ __forceinline__ int column(int i) { return i / 4 * 8 + i % 2; }
  static __device__ __forceinline__ int first_column() { return thread_anew() % 4 * 2; }

  // Rows that do not exist are zero: finite in every layer.
  __device__ __forceinline__ void load(const Call& p, int sequence) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool there = sequence < p.batch && token(r) < S::c.seq;
      const float* row = p.input + sequence * p.input_sequence + token(r) * p.input_token + first_column();
#pragma unroll
      for (int i = 2 * r; i < kRow; i += 4) {
        load_pair(x[i], x[i + 1], row + column(i), there);
      }
    }
  }

  // Raises a flag for each row whose root mean square is outside the range, but for zeros that the mask leaves out.
  __device__ __forceinline__ void check_range(const Call& p, int sequence) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float squares = 0;
#pragma unroll
      for (int i = 2 * r; i < kRow; i += 4) squares += x[i] * x[i] + x[i + 1] * x[i + 1];
      const float size = square_root(sum_lanes<4>(squares) / S::c.model);
      bool empty_padding = false;
      if constexpr (S::c.masked) empty_padding = size == 0 && !row_valid(r);
      const bool inside = size >= p.range[0] && size <= p.range[1];  // NaN is not
      if (sequence < p.batch && token(r) < S::c.seq && !inside && !empty_padding) raise(p.flags, kOutsideRange);
    }
  }

  __device__ __forceinline__ void store(const Call& p, int sequence) const {
    bool finite = true;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (sequence >= p.batch || token(r) >= S::c.seq) continue;
      float* row = p.output + sequence * p.output_sequence + token(r) * p.output_token + first_column();
#pragma unroll
      for (int i = 2 * r; i < kRow; i += 4) {
        *reinterpret_cast<float2*>(row + column(i)) = float2{x[i], x[i + 1]};
        finite &= is_finite(x[i]) && is_finite(x[i + 1]);
      }
    }
    if (p.flags && !finite) raise(p.flags, kOutputNotFinite);
  }

  // The mask waits in shared memory, for registers are short: a bit for each key, a copy for each warp.
  __device__ __forceinline__ u32 mask_words() const {
    return shared_base() + S::l.masks_at + (slot % S::c.groups * 4 + warp) * 16;
  }

  __device__ __forceinline__ void read_mask(const MaskBytes& mask, int sequence, bool real) const {
    const int lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int key = 32 * w + lane;
      const bool valid = real && key < S::c.seq && mask.data[sequence * mask.sequence + key * mask.token] != 0;
      const u32 word = __ballot_sync(kAllLanes, valid);
      if (lane == 0) store_shared(mask_words() + 4 * w, word);
    }
    __syncwarp();
  }

  __device__ __forceinline__ bool row_valid(int row) const {
    return load_shared(mask_words() + token(row) / 32 * 4) >> token(row) % 32 & 1;
  }

  // Which keys the rows see: all that exist or, in a causal stack, none after the row's own; and of these the valid
  // ones.
  __device__ __forceinline__ VisibleKeys<S::c.masked> visible_keys() const {
    VisibleKeys<S::c.masked> visible;
    const int first = threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      visible.last[r] = (S::c.causal && token(r) < S::c.seq ? token(r) : S::c.seq - 1) - first;
    }
    if constexpr (S::c.masked) {
#pragma unroll
      for (int w = 0; w < 4; ++w) visible.valid[w] = load_shared(mask_words() + 4 * w) >> first;
    }
    return visible;
  }

  __device__ __forceinline__ void final_norm(const Call& p) {
    float mean[2], inverse[2];
    row_statistics(x, p.eps, mean, inverse);
    const int first = first_column();
#pragma unroll
    for (int i = 0; i < kRow; ++i) {
      const int r = i % 4 / 2;
      const float shift = p.final_shift ? p.final_shift[first + column(i)] : 0.0f;
      x[i] = (x[i] - mean[r]) * inverse[r] * p.final_gain[first + column(i)] + shift;
    }
  }

  // The sequence that is at work after so many layers, counted over all rounds: no counter lives through the layers.
  __device__ __forceinline__ int sequence(const Call& p, u32 layers) const {
    const int round = static_cast<int>(layers / static_cast<u32>(p.layers));
    return first_sequence<S>() + first_slot() / S::l.tiles + round * round_sequences<S>();
  }

  // A grid has no more clusters than there are sequences for: each has a first round.
  __device__ __forceinline__ void run(const Call& p) {
    do {
      load(p, sequence(p, stream.layers));
      if (stream.layers == 0) cluster_barrier_relaxed();
      if constexpr (S::c.masked) read_mask(p.mask, sequence(p, stream.layers), sequence(p, stream.layers) < p.batch);
      if (p.range) check_range(p, sequence(p, stream.layers));
      do layer(p.eps);
      while (stream.layers % p.layers != 0);
      if constexpr (S::c.final_norm) final_norm(p);
      store(p, sequence(p, stream.layers - 1));
    } while (sequence(p, stream.layers) - first_slot() / S::l.tiles < p.batch);  // alike in the whole cluster
  }
};

template <typename S>
__global__ void __cluster_dims__(S::c.cluster, 1, 1) __launch_bounds__(S::l.threads, 1) resident_stack(const Call p) {
  if (threadIdx.x % 32 == 0) Barriers<S>::init();
  if constexpr (S::l.summed) {
    for (int i = threadIdx.x; i < S::l.ones_bytes / 4; i += S::l.threads) {
      store_shared(shared_base() + S::l.ones_at + 4 * i, pack2<f16>(1, 1));
    }
    publish_shared_writes();
    named_barrier(0, S::l.threads);
  }
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128), 0);  // known to be the warp's
  if (group < S::c.groups) {
    if constexpr (S::l.split_registers) take_registers<kConsumerRegisters>();
    Group<S>(group).run(p);
  } else {
    if constexpr (S::l.split_registers) give_registers<kProducerRegisters>();
    cluster_barrier_relaxed();
    if (threadIdx.x == 128 * S::c.groups) Producer<S>().run(p);
  }
  cluster_barrier();  // no CTA leaves while another may write its memory
}

}  // namespace gnomon::kernels::resident
