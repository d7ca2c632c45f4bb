#include "cpu/arena.hpp"

#include <cstring>
#include <new>

namespace gnomon::cpu {

Arena::Claim::Claim(Arena& arena, std::size_t bytes) : arena_(arena), bytes_(bytes) {
  std::lock_guard lock(arena.lock_);
  arena.at_least(bytes);
  arena.claims_.insert(bytes);
}

Arena::Claim::~Claim() {
  std::lock_guard lock(arena_.lock_);
  arena_.claims_.erase(arena_.claims_.find(bytes_));
}

char* Arena::at_least(std::size_t bytes) {
  if (buffer_.size() < bytes) {
    buffer_ = AlignedBuffer();  // its contents mean nothing between passes: free first, then take
    buffer_ = AlignedBuffer(bytes);
  }
  return buffer_.data();
}

void Arena::trim() {
  std::lock_guard lock(lock_);
  const std::size_t needed = claims_.empty() ? 0 : *claims_.rbegin();
  // A little slack is kept: taking memory anew costs a page fault for each 4 KiB.
  if (buffer_.size() <= needed + needed / 8 + (std::size_t{1} << 20)) return;
  buffer_ = AlignedBuffer();
  try {
    at_least(needed);
  } catch (const std::bad_alloc&) {  // somebody was faster; the next pass takes it, or fails with its own numbers
  }
}

void Arena::poison() {
  std::lock_guard lock(lock_);
  if (buffer_.size() > 0) std::memset(buffer_.data(), 0xff, buffer_.size());  // all ones is a NaN in every float type
}

std::size_t Arena::size() const {
  std::lock_guard lock(lock_);
  return buffer_.size();
}

}  // namespace gnomon::cpu
