#include "support/allocation_counter.hpp"

#include <link.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GNOMON_TEST_SANITIZED 1
#endif

namespace gnomon::test {
namespace {

constexpr int kMaxRanges = 32;
constexpr const char* kLibraries[] = {"libdnnl", "libgomp", "/libc.so", "/ld-linux", "libm.so", "libOpenCL"};

struct Range {
  std::uintptr_t begin = 0, end = 0;
};
Range ranges[kMaxRanges];
int range_count = 0;
std::atomic<bool> counting{false};
std::atomic<std::int64_t> our_count{0}, library_count{0};

int note_library(dl_phdr_info* info, std::size_t, void*) {
  bool library = false;
  for (const char* name : kLibraries) library = library || std::strstr(info->dlpi_name, name) != nullptr;
  for (int n = 0; library && n < info->dlpi_phnum && range_count < kMaxRanges; ++n) {
    const auto& header = info->dlpi_phdr[n];
    if (header.p_type != PT_LOAD || !(header.p_flags & PF_X)) continue;
    const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    ranges[range_count++] = {begin, begin + header.p_memsz};
  }
  return 0;
}

[[maybe_unused]] void count(void* caller) {
  if (!counting.load(std::memory_order_relaxed)) return;
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  for (int n = 0; n < range_count; ++n) {
    if (address >= ranges[n].begin && address < ranges[n].end) {
      ++library_count;
      return;
    }
  }
  ++our_count;
}

}  // namespace

AllocationCounter::AllocationCounter() {
  range_count = 0;
  dl_iterate_phdr(note_library, nullptr);
  our_count = library_count = 0;
  counting = true;
}

AllocationCounter::~AllocationCounter() { counting = false; }
std::int64_t AllocationCounter::ours() const { return our_count; }
std::int64_t AllocationCounter::libraries() const { return library_count; }

// Behind operator new: not through the malloc below, which would count it a second time under the wrong caller.
void* allocate(std::size_t bytes, std::size_t alignment, void* caller);

}  // namespace gnomon::test

#ifndef GNOMON_TEST_SANITIZED

extern "C" {  // glibc's own names for what is replaced below
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  gnomon::test::count(__builtin_return_address(0));
  return __libc_malloc(bytes);
}
void* calloc(std::size_t number, std::size_t bytes) {
  gnomon::test::count(__builtin_return_address(0));
  return __libc_calloc(number, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  gnomon::test::count(__builtin_return_address(0));
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  gnomon::test::count(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  gnomon::test::count(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  gnomon::test::count(__builtin_return_address(0));
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? 12 /* ENOMEM */ : 0;
}
}

void* gnomon::test::allocate(std::size_t bytes, std::size_t alignment, void* caller) {
  count(caller);
  return alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__ ? __libc_malloc(bytes) : __libc_memalign(alignment, bytes);
}

namespace {

void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
constexpr std::size_t kUsual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

using gnomon::test::allocate;

void* operator new(std::size_t bytes) { return or_throw(allocate(bytes, kUsual, __builtin_return_address(0))); }
void* operator new[](std::size_t bytes) { return or_throw(allocate(bytes, kUsual, __builtin_return_address(0))); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, kUsual, __builtin_return_address(0));
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, kUsual, __builtin_return_address(0));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return or_throw(allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0)));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return or_throw(allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0)));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#endif
