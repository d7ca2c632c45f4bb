#include "core/memory.hpp"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "core/error.hpp"

namespace gnomon {
namespace {

namespace fs = std::filesystem;

std::optional<std::int64_t> number_in(const fs::path& file) {
  std::ifstream stream(file);
  std::int64_t value = 0;
  if (!(stream >> value)) return std::nullopt;  // "max" too: no limit
  return value;
}

// "Key:   123 kB" in one of the system's tables.
std::optional<std::int64_t> bytes_in(const char* table, std::string_view key) {
  std::ifstream stream(table);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(key)) return std::stoll(line.substr(key.size())) * 1024;
  }
  return std::nullopt;
}

struct ProcessLimit {
  decltype(RLIMIT_AS) resource;
  const char *name, *used;
};
constexpr ProcessLimit kProcessLimits[] = {{RLIMIT_AS, "RLIMIT_AS, ulimit -v", "VmSize:"},
                                           {RLIMIT_DATA, "RLIMIT_DATA, ulimit -d", "VmData:"}};

std::optional<std::int64_t> limit_of(const ProcessLimit& limit) {
  rlimit set{};
  if (getrlimit(limit.resource, &set) != 0 || set.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<std::int64_t>(std::min<rlim_t>(set.rlim_cur, std::numeric_limits<std::int64_t>::max()));
}

std::optional<AvailableMemory> left_of_process_limits() {
  std::optional<AvailableMemory> least;
  for (const ProcessLimit& limit : kProcessLimits) {
    const std::optional<std::int64_t> set = limit_of(limit);
    if (!set) continue;
    const std::int64_t left = std::max<std::int64_t>(*set - bytes_in("/proc/self/status", limit.used).value_or(0), 0);
    if (!least || left < least->bytes) least = {left, limit.name};
  }
  return least;
}

// Pages of files count as used by a group, yet the kernel gives them back first.
std::int64_t reclaimable(const fs::path& group, std::string_view wanted) {
  std::ifstream stream(group / "memory.stat");
  std::string key;
  for (std::int64_t value = 0; stream >> key >> value;) {
    if (key == wanted) return value;
  }
  return 0;
}

struct Version {
  const char *root, *limit, *usage, *file_pages;
};
constexpr Version v2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
constexpr Version v1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};

// A limit anywhere on the way to the root binds.
void tighten(AvailableMemory& memory, const Version& version, const std::string& group) {
  const fs::path root = version.root;
  fs::path here = root / fs::path(group).relative_path();
  std::error_code ignored;
  if (!fs::exists(here, ignored)) here = root;  // in a container the path is the host's
  for (;; here = here.parent_path()) {
    const auto limit = number_in(here / version.limit);
    const auto usage = number_in(here / version.usage);
    if (limit && usage) {
      const std::int64_t left = *limit - *usage + reclaimable(here, version.file_pages);
      if (left < memory.bytes) memory = {std::max<std::int64_t>(left, 0), (here / version.limit).string()};
    }
    if (here == root || !here.has_relative_path()) return;
  }
}

}  // namespace

bool has_process_limits() {
  return std::ranges::any_of(kProcessLimits, [](const ProcessLimit& limit) { return limit_of(limit).has_value(); });
}

void share_one_heap_under_limits() {
  if (has_process_limits()) mallopt(M_ARENA_MAX, 1);
}

void require_library_reserve() {
  const auto left = left_of_process_limits();
  if (!left || left->bytes >= kLibraryReserve) return;
  throw_environment(
      "{} of address space are left ({}), {} are needed for the code that oneDNN generates: raise the limit",
      format_bytes(static_cast<double>(left->bytes)), left->source, format_bytes(double{kLibraryReserve}));
}

AvailableMemory available_memory() {
  AvailableMemory memory{bytes_in("/proc/meminfo", "MemAvailable:").value_or(std::numeric_limits<std::int64_t>::max()),
                         "/proc/meminfo"};
  if (const auto left = left_of_process_limits(); left && left->bytes - kLibraryReserve < memory.bytes)
    memory = {std::max<std::int64_t>(left->bytes - kLibraryReserve, 0),
              fmt::format("{} less {} for generated code", left->source, format_bytes(double{kLibraryReserve}))};
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path" or "4:memory:/path"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) tighten(memory, v2, group);
    if (controllers.find("memory") != std::string::npos) tighten(memory, v1, group);
  }
  return memory;
}

std::string format_bytes(double bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

}  // namespace gnomon
