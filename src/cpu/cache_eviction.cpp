#include "cpu/cache_eviction.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>

#include "cpu/cpu_info.hpp"
#include "cpu/thread_pool.hpp"

namespace gnomon::cpu {
namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kUntoldL2 = 2 << 20, kUntoldL3 = 64 << 20;  // machines that tell no sizes: larger than most

std::string first_line(const char* path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// "0-7,16-23" is 16.
int count_of_list(const std::string& list) {
  int count = 0;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    int first = 0;
    const char* const end = range.data() + range.size();
    const char* const dash = std::from_chars(range.data(), end, first).ptr;
    int last = first;
    if (dash != end) std::from_chars(dash + 1, end, last);
    count += std::max(0, last - first) + 1;
  }
  return count;
}

}  // namespace

SharedCache shared_cache() {
  const std::string size = first_line("/sys/devices/system/cpu/cpu0/cache/index3/size");  // "32768K"
  std::int64_t kibibytes = 0;
  std::from_chars(size.data(), size.data() + size.size(), kibibytes);
  const int sharers = count_of_list(first_line("/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list"));
  if (kibibytes > 0 && sharers > 0) return {kibibytes << 10, sharers};
  const CpuInfo& cpu = cpu_info();
  return {cpu.l3_bytes > 0 ? cpu.l3_bytes : kUntoldL3, cpu.cores};
}

CacheEviction::CacheEviction(int workers) : workers_(workers) {
  const SharedCache l3 = shared_cache();
  const std::int64_t l2 = cpu_info().l2_bytes > 0 ? cpu_info().l2_bytes : kUntoldL2;
  part_ = 2 * std::max(l2, l3.bytes / std::min(workers, l3.cores) + 1);
  part_ = (part_ + kLine - 1) / kLine * kLine;
}

void CacheEviction::operator()() {
  if (buffer_.size() == 0) buffer_ = AlignedBuffer(static_cast<std::size_t>(bytes()));
  ThreadPool::shared().run(workers_, [this](int worker) {
    // Line by line and not memset(), which writes large blocks past the caches.
    volatile char* const part = buffer_.data() + worker * part_;
    for (std::int64_t at = 0; at < part_; at += kLine) part[at] = static_cast<char>(part[at] + 1);
  });
}

}  // namespace gnomon::cpu
