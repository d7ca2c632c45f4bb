#include "cpu/aligned_buffer.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace gnomon::cpu {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kHugePage = 2u << 20;

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kLine;
  const std::size_t rounded = (bytes + kLine - 1) / kLine * kLine;
  void* p = nullptr;
  if (posix_memalign(&p, alignment, rounded) != 0) throw std::bad_alloc();
  data_.reset(static_cast<char*>(p));
  size_ = rounded;
  // Advice only: 4 KiB pages halve the copy rate of large blocks (TLB misses) where it is not taken.
  if (alignment == kHugePage) madvise(p, rounded / kHugePage * kHugePage, MADV_HUGEPAGE);
}

void AlignedBuffer::Free::operator()(char* p) const { std::free(p); }

}  // namespace gnomon::cpu
