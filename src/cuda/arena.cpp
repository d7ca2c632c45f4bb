#include "cuda/arena.hpp"

#include <new>

namespace gnomon::cuda {
bool is_capturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(driver().cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Arena::Arena() { check(driver().cuEventCreate(&done_, CU_EVENT_DISABLE_TIMING), "cuEventCreate"); }
Arena::~Arena() {
  release();
  driver().cuEventDestroy(done_);
}

Arena::Claim::Claim(Arena& arena, std::size_t bytes) : arena_(arena), bytes_(bytes) {
  const std::lock_guard lock(arena.mutex_);
  arena.at_least(bytes);
  arena.claims_.insert(bytes);
}

Arena::Claim::~Claim() {
  const std::lock_guard lock(arena_.mutex_);
  arena_.claims_.erase(arena_.claims_.find(bytes_));
}

Arena::Use::Use(Arena& arena, const Claim& claim, CUstream stream)
    : arena_(arena), lock_(arena.mutex_), stream_(stream), captured_(is_capturing(stream)) {
  if (captured_) {
    scratch_.data = arena.captured_.emplace_back(claim.bytes()).data();
    scratch_.zeros = arena.captured_.emplace_back(arena.zeros()).as<std::uint32_t>();
    return;
  }
  scratch_ = {arena.at_least(claim.bytes()), arena.zeros_.as<std::uint32_t>()};
  if (arena.used_ && arena.last_ != stream)
    check(driver().cuStreamWaitEvent(stream, arena.done_, 0), "cuStreamWaitEvent");
}

Arena::Use::~Use() {
  if (captured_) return;
  // Recorded at once: by the time another stream comes, this one may be gone.
  driver().cuEventRecord(arena_.done_, stream_);
  arena_.last_ = stream_;
  arena_.used_ = true;
}

void Arena::release() {
  if (used_) driver().cuEventSynchronize(done_);
  used_ = false;
  buffer_ = DeviceBuffer();
}

std::byte* Arena::at_least(std::size_t bytes) {
  if (buffer_.bytes() < bytes) {
    release();  // its contents mean nothing between passes: give back first, then take
    buffer_ = DeviceBuffer(bytes);
  }
  return buffer_.data();
}

DeviceBuffer Arena::zeros() const {
  DeviceBuffer buffer(Scratch::kZeroBytes);
  check(driver().cuMemsetD8Async(buffer.address(), 0, buffer.bytes(), ours_), "cuMemsetD8Async");
  ours_.synchronize();
  return buffer;
}

void Arena::wait() const {
  const std::lock_guard lock(mutex_);
  if (used_) driver().cuEventSynchronize(done_);
}

void Arena::trim() {
  const std::lock_guard lock(mutex_);
  const std::size_t needed = claims_.empty() ? 0 : *claims_.rbegin();
  if (buffer_.bytes() <= needed + needed / 8 + (std::size_t{1} << 20)) return;
  try {
    release();
    at_least(needed);
  } catch (const std::bad_alloc&) {  // somebody was faster; the next pass takes it, or fails with its own numbers
  }
}

void Arena::poison(CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (!buffer_.data()) return;
  if (used_) check(driver().cuStreamWaitEvent(stream, done_, 0), "cuStreamWaitEvent");
  check(driver().cuMemsetD8Async(buffer_.address(), 0xff, buffer_.bytes(), stream), "cuMemsetD8Async");
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
}

std::size_t Arena::size() const {
  const std::lock_guard lock(mutex_);
  return buffer_.bytes();
}

}  // namespace gnomon::cuda
