// A pass over some sequences of a call, as steps. A plan makes its passes once; a pass writes its steps for the memory
// that it is given and for the layout of the caller's tensors.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/tensor.hpp"
#include "cuda/arena.hpp"
#include "cuda/steps.hpp"

namespace gnomon::cuda {

// All that steps depend on of a call's tensors, but their addresses.
struct BorderLayout {
  std::array<std::int64_t, 3> input{}, output{};
  std::array<std::int64_t, 2> mask{};
  int input_vec = 1, output_vec = 1;
  bool operator==(const BorderLayout&) const = default;

  static BorderLayout of(const Call& call);
};

class Pass {
 public:
  virtual ~Pass() = default;
  virtual std::size_t scratch_bytes() const = 0;
  // `part`: the call on this pass's sequences; its addresses are examples.
  virtual void write_steps(StepList& steps, const Scratch& scratch, const Call& part, const BorderLayout& layout) = 0;
};

// Offsets of buffers, each aligned for any access.
class Places {
 public:
  std::size_t take(std::int64_t elements, std::size_t size) {
    const std::size_t at = end_;
    end_ += (static_cast<std::size_t>(elements) * size + 255) / 256 * 256;
    return at;
  }
  std::size_t end() const { return end_; }
  void back_to(std::size_t end) { end_ = end; }  // what was placed since shares its memory with what comes
  void at_least(std::size_t end) { end_ = std::max(end_, end); }

 private:
  std::size_t end_ = 0;
};

// A pass with the steps that it last wrote, one set for each layout of the last few calls.
class WrittenPass {
 public:
  explicit WrittenPass(std::unique_ptr<Pass> pass) : pass_(std::move(pass)) {}
  std::size_t scratch_bytes() const { return pass_->scratch_bytes(); }
  void launch(CUstream stream, const Scratch& scratch, const Call& part, const BorderLayout& layout);
  // Into a capture of the caller's, with scratch of its own: the steps for the arena stay as they are.
  void launch_captured(CUstream stream, const Scratch& scratch, const Call& part, const BorderLayout& layout);
  // As a graph, captured on `ours` when it is new; after it, in the same graph, `fallback` under its condition (null:
  // none). With `launched`, only the fallback is captured, and the pass goes ahead of it as launches.
  void replay(CUstream stream, const Scratch& scratch, const Call& part, const BorderLayout& layout,
              WrittenPass* fallback, CUstream ours, bool launched);
  // Whether a graph could hold it as a fallback.
  bool body_touches_border(const Scratch& scratch, const Call& part, const BorderLayout& layout) {
    return steps_for(scratch, part, layout).body_touches_border();
  }

 private:
  struct Written {
    Scratch scratch;
    BorderLayout layout;
    std::unique_ptr<StepList> steps;
  };
  StepList& steps_for(const Scratch& scratch, const Call& part, const BorderLayout& layout);

  std::unique_ptr<Pass> pass_;
  std::vector<Written> written_;  // the last used one is last
};

}  // namespace gnomon::cuda
