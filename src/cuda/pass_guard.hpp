// How a pass of reduced precision and the fp32 pass behind it share a call.
#pragma once

#include <cstdint>

namespace gnomon::cuda {

// The guarded pass raises a flag for rows outside of a range and for outputs that are not finite; the fallback answers
// where the flag is up.
struct PassGuard {
  enum class Role { none, guarded, fallback } role = Role::none;
  const float* range = nullptr;
  std::uint32_t* flag = nullptr;      // one word, cleared by the guarded pass
  std::uint32_t* answered = nullptr;  // counts the fallback's answers
  bool commit = false;                // guarded: the output is the input, and is written only when the flag is down

  bool keeps_result() const { return commit || role == Role::fallback; }
};

}  // namespace gnomon::cuda
