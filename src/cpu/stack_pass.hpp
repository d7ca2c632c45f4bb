// One slice's way through the stack: the part of a StackPlan that reads as the layer does.
#pragma once

#include <cstdint>

#include "core/tensor.hpp"
#include "cpu/stack_plan.hpp"

namespace gnomon::cpu {

// With an SpmdTeam every worker has a StackPass of its own over the same memory: no member may hold what workers share.
class StackPass {
 public:
  StackPass(StackPlan& plan, const Call& call, float* base, std::int64_t slice, int owner, bool kernels);

  template <class Team>
  void run(const Team& team);

 private:
  using Products = std::vector<BlockProducts>;
  struct Rows {
    std::int64_t first, count;  // within the slice
  };

  template <class Team>
  void layers(const Team& team, const Products& products);
  template <class Team>
  void attend(const Team& team, std::int64_t layer);
  template <class Team>
  void attend_unfused(const Team& team, std::int64_t layer);

  // Row items.
  void load(const Rows& rows);
  bool in_verified_range(const Rows& rows) const;
  void find_keys(std::int64_t sequence);
  void project(const Products& products, std::int64_t layer, int worker, const Rows& rows);
  void finish(const Products& products, std::int64_t layer, int worker, const Rows& rows);
  void residual_product(const Product& product, int worker, const void* x, const Rows& rows);
  void feed_forward(const LayerProducts& p, const float* x, int worker, const Rows& rows);
  void complete(const Rows& rows);  // after the last layer: the final norm, and the output
  void check_finite(const Rows& rows);
  void store(const Rows& rows);

  // Head items.
  void attend_head(std::int64_t layer, int worker, std::int64_t sequence, std::int64_t head, std::int64_t q_begin,
                   std::int64_t q_end);
  void attend_rows(std::int64_t layer, int worker, const Rows& rows);

  void norm(const NormWeights& norm, const float* x, std::int64_t ldx, float* y, std::int64_t ldy,
            std::int64_t rows) const;
  bool norm_into_output(const NormWeights& norm, const Rows& rows);
  const void* operand(bool bf16, int worker, const float* x, std::int64_t ldx, std::int64_t width, std::int64_t rows);
  const LayerProducts& products_of(const Products& products, std::int64_t layer, const Rows& rows) const;

  std::int64_t row_items() const { return (slice_rows_ + block_rows_ - 1) / block_rows_; }
  Rows rows_of(std::int64_t item) const;
  float* x(const Rows& rows) const { return owner_ + layout_.x + rows.first * d_; }
  float* qkv(std::int64_t layer, std::int64_t row) const { return owner_ + layout_.qkv[layer % 2] + row * 3 * d_; }
  float* worker_part(int worker, std::int64_t offset) const {
    return workers_ + worker * layout_.worker_floats + offset;
  }
  bool elides_mask() const { return call_.mask && plan_.choices_.mask_elision; }

  StackPlan& plan_;
  const StackLayout& layout_;
  const StackConfig& config_;
  const Call call_;  // of this slice's sequences
  const bool kernels_;
  const std::int64_t d_, seq_, sequences_, slice_rows_, block_rows_;
  float* const owner_;
  float* const workers_;
  StackPlan::SliceFlags* const flags_;
  bool hold_output_ = false;  // reduced precision: the output waits for its check
};

}  // namespace gnomon::cpu

#include "cpu/stack_pass-inl.hpp"
