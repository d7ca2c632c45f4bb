// The optimised pass: slices of the batch go through the whole stack while they stay in cache.
//
// A slice's activations live in the arena, never in the caller's tensors: input and output are touched once each, so
// the output may be the input, in any strides and dtype. A layer is three stages over independent items:
//   project   rows:  (norm,) Q, K, V
//   attend    heads: attention, written over Q
//   finish    rows:  output projection + residual + norm, FFN + residual + norm; then the next layer's `project`,
//                    since the rows are still in cache
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "core/problem.hpp"
#include "core/weights.hpp"
#include "cpu/arena.hpp"
#include "cpu/choices.hpp"
#include "cpu/product.hpp"
#include "plan/backend.hpp"
#include "reference/plain_attention.hpp"

namespace gnomon::cpu {

// The products of all layers for row blocks of one height, in one precision.
struct LayerProducts {
  struct Projection {
    Product product;
    std::int64_t column;  // of Q|K|V that it writes from
  };
  std::vector<Projection> qkv;
  std::vector<Product> out, fc1, fc2;  // one each; a vector because a Product is made late
};
struct BlockProducts {
  std::int64_t rows;
  std::vector<LayerProducts> layers;
};

// How a problem is cut, and where everything lies in the arena (offsets in floats). Pure arithmetic.
struct StackLayout {
  std::int64_t slice_sequences, slices;
  int workers, owners;      // owners: slices in flight at once
  std::int64_t block_rows;  // of a row item
  std::int64_t owner_floats, worker_floats, total_floats;
  std::int64_t x, qkv[2], keys, key_counts, scores, weights;  // within an owner's part
  std::int64_t hidden, norm, narrow, attention;               // within a worker's part

  std::int64_t rows_of_block(std::int64_t slice_rows) const;
};
StackLayout make_stack_layout(const Problem& problem, const Choices& choices);

class StackPlan final : public Plan {
 public:
  StackPlan(const Problem& problem, const Choices& choices, std::shared_ptr<const Weights> weights, WeightPacks& packs,
            Arena& arena);

  void run(const Call& call) override;
  bool run_without_kernels(const Call& call) override;
  void poison_scratch() override { arena_.poison(); }
  std::int64_t scratch_bytes() const override { return static_cast<std::int64_t>(claim_.bytes()); }
  std::int64_t packed_bytes() const override;
  std::int64_t range_fallbacks() const override { return range_fallbacks_.load(std::memory_order_relaxed); }
  void set_verified_range(const InputRange& range) override {
    smallest_row_.store(static_cast<float>(range.low));
    largest_row_.store(static_cast<float>(range.high));
  }

 private:
  friend class StackPass;
  struct SliceFlags {
    std::atomic<bool> outside{false};     // of the verified range
    std::atomic<bool> not_finite{false};  // an output; a NaN in the input counts too, and fp32 answers it as well
  };
  void execute(const Call& call, bool kernels);
  std::vector<BlockProducts> bind(Precision precision, WeightPacks& packs) const;
  LayerProducts bind_layer(const LayerWeights& weights, Precision precision, std::int64_t rows,
                           WeightPacks& packs) const;

  const Problem problem_;
  const Choices choices_;
  const std::shared_ptr<const Weights> weights_;
  const StackLayout layout_;
  Arena& arena_;
  const Arena::Claim claim_;
  std::vector<BlockProducts> fp32_, reduced_;
  std::vector<reference::PlainAttention> plain_attention_;  // one when attention is not fused
  std::unique_ptr<SliceFlags[]> flags_;                     // of each slice; only when precision is reduced
  std::atomic<float> smallest_row_{0}, largest_row_{std::numeric_limits<float>::infinity()};  // the verified range
  std::atomic<std::int64_t> range_fallbacks_{0};
};

}  // namespace gnomon::cpu
