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
  void run(std::int64_t slice, CUstream stream, std::byte* scratch, const Call& call, const BorderLayout& layout,
           std::uint32_t* flags, std::optional<CUstream> graph);

 private:
  std::int64_t batch_, slice_;
  WrittenPass whole_;
  std::optional<WrittenPass> rest_;
};

// What a plan of reduced precision needs to answer every call: flags of its slices, the range, and the fp32 pass.
class RangeGuard {
 public:
  RangeGuard(Machine& machine, std::int64_t slices);
  const float* range() const { return range_.as<float>(); }
  std::uint32_t* flags() const { return flags_.as<std::uint32_t>(); }
  void set(const InputRange& range);
  bool on() const { return on_.load(std::memory_order_relaxed); }

  void clear(CUstream stream) const;
  // Waits for the stream; the flags of each slice, in host memory.
  const std::uint32_t* read(CUstream stream) const;

  std::atomic<std::int64_t> fallbacks{0};

 private:
  Machine& machine_;
  std::int64_t slices_;
  DeviceBuffer range_, flags_;
  PinnedBuffer host_flags_;
  std::atomic<bool> on_{true};
};

class DevicePlan final : public Plan {
 public:
  struct Parts {
    std::shared_ptr<Machine> machine;
    std::unique_ptr<RangeGuard> guard;  // null: fp32 throughout
    std::unique_ptr<SlicedPass> pass, fallback;
    bool graph = false;
    bool commits = false;  // the pass writes its output only where no flag is raised
  };
  explicit DevicePlan(Parts parts);
  ~DevicePlan() override;

  void run(const Call& call) override;
  void poison_scratch() override;
  std::int64_t scratch_bytes() const override { return static_cast<std::int64_t>(claim_->bytes()); }
  std::int64_t packed_bytes() const override { return parts_.machine->weights.bytes(); }
  std::int64_t range_fallbacks() const override { return parts_.guard ? parts_.guard->fallbacks.load() : 0; }
  void set_verified_range(const InputRange& range) override;

 private:
  void require_device_memory(const Call& call) const;
  void run_all(SlicedPass& pass, CUstream stream, std::byte* scratch, const Call& call, const BorderLayout& layout,
               bool graph);

  Parts parts_;
  std::unique_ptr<Arena::Claim> claim_;
};

}  // namespace gnomon::cuda
