// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace gnomon {

struct AvailableMemory {
  std::int64_t bytes = 0;
  std::string source;  // "/proc/meminfo" or the control group that is tighter
};

AvailableMemory available_memory();
std::string format_bytes(double bytes);  // "812.3 MiB"

}  // namespace gnomon
