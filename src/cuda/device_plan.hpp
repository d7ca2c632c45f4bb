// A plan on the device: a pass over each slice of the batch, launched or replayed as a graph, in the arena.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "cuda/machine.hpp"
#include "cuda/pass.hpp"
#include "plan/backend.hpp"

namespace gnomon::cuda {

// The passes over whole slices and over the last, smaller one.
class SlicedPass {
 public:
  // make(sequences) -> std::unique_ptr<Pass>
  template <typename Make>
  SlicedPass(std::int64_t batch, std::int64_t slice, Make&& make) : batch_(batch), slice_(slice), whole_(make(slice)) {
    if (batch % slice != 0) rest_.emplace(make(batch % slice));
  }
  std::int64_t slices() const { return (batch_ + slice_ - 1) / slice_; }
  std::size_t scratch_bytes() const;
  Call part(const Call& call, std::int64_t slice) const;
  WrittenPass& pass(std::int64_t slice) { return (slice + 1) * slice_ <= batch_ ? whole_ : *rest_; }

 private:
  std::int64_t batch_, slice_;
  WrittenPass whole_;
  std::optional<WrittenPass> rest_;
};

// What a plan of reduced precision needs to answer every call: the range, the flag, the count of the fallback's
// answers.
class RangeGuard {
 public:
  explicit RangeGuard(const Machine& machine);
  const float* range() const { return words_.as<float>(); }
  std::uint32_t* flag() const { return words_.as<std::uint32_t>() + 2; }
  std::uint32_t* answered() const { return words_.as<std::uint32_t>() + 3; }
  void set(const InputRange& range);
  bool on() const { return on_.load(std::memory_order_relaxed); }
  void lower(CUstream stream) const;
  bool is_raised(CUstream stream) const;  // waits for the stream
  std::int64_t fallbacks() const;         // waits for a copy

 private:
  std::uint32_t read(const std::uint32_t* word, CUstream stream) const;

  const Machine& machine_;
  DeviceBuffer words_;  // range[2], flag, answered
  std::atomic<bool> on_{true};
};

class DevicePlan final : public Plan {
 public:
  struct Parts {
    std::shared_ptr<Machine> machine;
    std::shared_ptr<RangeGuard> guard;           // null: fp32 throughout
    std::shared_ptr<SlicedPass> pass, fallback;  // no fallback: fp32, or a pass that answers by itself
    bool graph = false;
    bool commits = false;  // the pass writes its output only while the flag is down
  };
  explicit DevicePlan(Parts parts);
  ~DevicePlan() override;

  void run(const Call& call) override;
  void poison_scratch() override;
  std::int64_t scratch_bytes() const override { return static_cast<std::int64_t>(claim_->bytes()); }
  std::int64_t packed_bytes() const override { return parts_.machine->weights.bytes(); }
  std::int64_t range_fallbacks() const override;
  void set_verified_range(const InputRange& range) override;

 private:
  void require_device_memory(const Call& call) const;
  void run_slice(std::int64_t slice, const Arena::Use& use, CUstream stream, const Call& call,
                 const BorderLayout& layout);

  Parts parts_;
  std::unique_ptr<Arena::Claim> claim_;
};

}  // namespace gnomon::cuda
