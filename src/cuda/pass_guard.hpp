// How a pass of reduced precision and the fp32 pass behind it share a call.
#pragma once

#include <cstdint>

namespace gnomon::cuda {

// The guarded pass raises a flag for rows outside of a range and for outputs that are not finite. The fallback's first
// step decides whether the others, its body, answer: where the flag is up, which it then clears, or, launched outside
// of the guarded pass's graph, in any case.
struct PassGuard {
  enum class Role { none, guarded, fallback } role = Role::none;
  const float* range = nullptr;
  std::uint32_t* flag = nullptr;      // one word
  std::uint32_t* answered = nullptr;  // counts the fallback's answers
  bool commit = false;                // guarded: the output is the input, and is written only when the flag is down
  bool answers = false;               // guarded: the pass ends in its own fp32 answer, and no fallback follows it

  bool keeps_result() const { return commit || role == Role::fallback; }
};

}  // namespace gnomon::cuda
