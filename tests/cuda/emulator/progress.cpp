#include "cuda/emulator/progress.hpp"

#include <cstring>

#include "cuda/emulator/engine.hpp"
#include "cuda/emulator/shared_memory.hpp"

namespace gnomon::emulator {
namespace {

constexpr std::uint64_t kMostPolls = 100'000;

bool reached(std::uint32_t counter, std::uint32_t count) {
  std::uint32_t now = 0;
  ordinary_read(counter, &now, sizeof now, "ld.acquire.cta.shared.u32");
  return static_cast<std::int32_t>(now - count) >= 0;
}

}  // namespace

void publish_progress(std::uint32_t counter, std::uint32_t count) {
  ordinary_write(counter, &count, sizeof count, "st.release.cta.shared.u32");
  ++cluster->events;
  yield_sometimes();
}

// A loop over this one must let others go on, and ends where nobody does anything any more.
bool has_reached(std::uint32_t counter, std::uint32_t count) {
  if (reached(counter, count)) {
    yield_sometimes();
    return true;
  }
  const std::uint64_t before = cluster->events;
  yield();
  if (cluster->events != before) {
    current->polls = 0;
  } else if (++current->polls > kMostPolls) {
    fail("polls for ever: the counter at {:#x} does not reach {}", counter, count);
  }
  return reached(counter, count);
}

}  // namespace gnomon::emulator
