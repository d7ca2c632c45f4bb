// Scratch memory on the device, shared by all plans of an engine: as large as its largest live plan needs. Passes take
// turns in it, in the order in which they are called, whatever streams they are on; no host waits for a device.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

#include "cuda/device_buffer.hpp"

namespace gnomon::cuda {

// What a pass works in. `zeros` are words that are zero when it begins and that it leaves so: state of kernels that
// count their blocks.
struct Scratch {
  static constexpr std::size_t kZeroBytes = 256;
  std::byte* data = nullptr;
  std::uint32_t* zeros = nullptr;

  std::byte* operator+(std::size_t at) const { return data + at; }
  bool operator==(const Scratch&) const = default;
};

class Arena {
 public:
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A plan's claim to so many bytes, for as long as it lives. std::bad_alloc when the device has no room.
  class Claim {
   public:
    Claim(Arena& arena, std::size_t bytes);
    ~Claim();
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    std::size_t bytes() const { return bytes_; }

   private:
    Arena& arena_;
    std::size_t bytes_;
  };

  // Exclusive use for the work that is put on `stream` while it lives. Work put on other streams before is waited for
  // by the device. A stream that is being captured gets memory of its own, which is kept until the arena dies: its
  // graph may be launched whenever its owner likes.
  class Use {
   public:
    Use(Arena& arena, const Claim& claim, CUstream stream);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    const Scratch& scratch() const { return scratch_; }
    bool captured() const { return captured_; }

   private:
    Arena& arena_;
    std::lock_guard<std::mutex> lock_;
    CUstream stream_;
    bool captured_;
    Scratch scratch_;
  };

  void wait() const;             // the host, for the last use
  void trim();                   // gives back what no claim needs; never throws
  void poison(CUstream stream);  // fills it with NaN: what a pass reads, it must have written
  std::size_t size() const;

 private:
  std::byte* at_least(std::size_t bytes);
  void release();
  DeviceBuffer zeros() const;

  mutable std::mutex mutex_;
  std::multiset<std::size_t> claims_;
  const Stream ours_;
  const DeviceBuffer zeros_ = zeros();
  DeviceBuffer buffer_;
  std::vector<DeviceBuffer> captured_;
  CUevent done_ = nullptr;  // the last use
  CUstream last_ = nullptr;
  bool used_ = false;
};

bool is_capturing(CUstream stream);

}  // namespace gnomon::cuda
