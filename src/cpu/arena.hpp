// Scratch memory shared by all plans of an engine: as large as its largest live plan needs, used by one pass at a time.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>

#include "cpu/aligned_buffer.hpp"

namespace gnomon::cpu {

class Arena {
 public:
  // A plan's claim to so many bytes, for as long as it lives.
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

  // Exclusive use for one pass. Throws std::bad_alloc when memory given back before cannot be had again.
  class Use {
   public:
    Use(Arena& arena, const Claim& claim) : lock_(arena.lock_), data_(arena.at_least(claim.bytes())) {}
    char* data() const { return data_; }

   private:
    std::lock_guard<std::mutex> lock_;
    char* data_;
  };

  void trim();    // gives back what no claim needs; never throws
  void poison();  // fills it with NaN: what a pass reads, it must have written
  std::size_t size() const;

 private:
  char* at_least(std::size_t bytes);

  mutable std::mutex lock_;
  std::multiset<std::size_t> claims_;
  AlignedBuffer buffer_;
};

}  // namespace gnomon::cpu
