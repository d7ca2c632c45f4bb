// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace gnomon {

struct AvailableMemory {
  std::int64_t bytes = 0;
  std::string source;  // "/proc/meminfo", or the control group or the process's own limit that is tighter
};

// The least of what the system, the control groups and the process's own limits leave; of the last, kLibraryReserve is
// left out.
AvailableMemory available_memory();

// Kept of the process's own limits (ulimit -v, ulimit -d) for what libraries take without asking. oneDNN generates code
// when a product is made and when it first runs, and crashes when there is no room for it.
inline constexpr std::int64_t kLibraryReserve = std::int64_t{32} << 20;
bool has_process_limits();
// Before the first thread starts: each would take 64 MiB of address space for a heap of its own, at any moment, and so
// what was counted as left for oneDNN. Nothing without limits. For programs: a library leaves its process's malloc
// alone.
void share_one_heap_under_limits();
void require_library_reserve();          // environment error when a limit leaves less; nothing without limits
std::string format_bytes(double bytes);  // "812.3 MiB"

}  // namespace gnomon
