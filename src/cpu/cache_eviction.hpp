// Takes what a pass reads out of the caches, so that the next pass can be timed cold.
#pragma once

#include <cstdint>
#include <span>

#include "cpu/aligned_buffer.hpp"

namespace gnomon::cpu {

// The last-level cache as the kernel tells it: sysconf() adds up all of a package's on some machines.
struct SharedCache {
  std::int64_t bytes = 0;
  int cores = 1;  // that share it
};
SharedCache shared_cache();

class CacheEviction {
 public:
  explicit CacheEviction(int workers);
  // Every worker writes its own part of a buffer: private caches are emptied only by their own core, and the parts of
  // the workers on one L3 are together twice as large as it is. Takes the buffer when first called; throws
  // std::bad_alloc.
  void operator()();
  std::int64_t bytes() const { return workers_ * part_; }
  std::span<const char> buffer() const { return {buffer_.data(), buffer_.size()}; }  // empty before the first call

 private:
  const int workers_;
  std::int64_t part_;
  AlignedBuffer buffer_;
};

}  // namespace gnomon::cpu
