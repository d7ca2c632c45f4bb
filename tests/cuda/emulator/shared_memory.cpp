#include "cuda/emulator/shared_memory.hpp"

#include <algorithm>
#include <cstring>

#include "cuda/emulator/engine.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) (void(address), void(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (void(address), void(bytes))
#endif

// The one array behind every `extern __shared__ T name[]` of device code: a kernel that declares it under another name
// gets a line here.
extern "C" {
alignas(1024) thread_local unsigned char gnomon_emulated_shared[gnomon::emulator::kMostShared + 4096];
}
asm(R"(
.globl _ZN6gnomon7kernels6sharedE
.type _ZN6gnomon7kernels6sharedE, @tls_object
.set _ZN6gnomon7kernels6sharedE, gnomon_emulated_shared
.globl _ZN6gnomon7kernels8resident6memoryE
.type _ZN6gnomon7kernels8resident6memoryE, @tls_object
.set _ZN6gnomon7kernels8resident6memoryE, gnomon_emulated_shared
)");

namespace gnomon::emulator {
namespace {

// Behind the dynamic shared memory, where nobody may write.
constexpr unsigned char kNobody = 0xa5;
constexpr std::uint32_t kGuard = 4096;
constexpr std::uint32_t kOffsetBits = 24;

Location at(Cta& cta, std::uint32_t address, std::uint32_t bytes, std::uint32_t alignment, const char* what) {
  const std::uint32_t place = address & ((1u << kOffsetBits) - 1);
  const SharedBytes& shared = *cta.shared;
  if (place < kSharedAt || place - kSharedAt + bytes > shared.size) {
    fail("{}: {} bytes at shared address {:#x}, the block has [{:#x}, {:#x})", what, bytes, address, kSharedAt,
         kSharedAt + shared.size);
  }
  if (place % alignment != 0) fail("{}: shared address {:#x} is no multiple of {}", what, address, alignment);
  return {&cta, place - kSharedAt, shared.data + (place - kSharedAt)};
}

}  // namespace

SharedBytes::SharedBytes(int bytes) : data(gnomon_emulated_shared), size(static_cast<std::uint32_t>(bytes)) {
  if (bytes < 0 || bytes > kMostShared)
    throw_internal("emulate: {} bytes of dynamic shared memory, a block has at most {}", bytes, kMostShared);
  std::memset(data, 0xff, size);
  std::memset(data + size, kNobody, kGuard);
  ASAN_POISON_MEMORY_REGION(data + (size + 7) / 8 * 8, sizeof gnomon_emulated_shared - (size + 7) / 8 * 8);
  words.assign((size + 3) / 4, 0);
  to_be_read.assign(words.size(), 0);
}

void SharedBytes::check_end() const {
  ASAN_UNPOISON_MEMORY_REGION(data, sizeof gnomon_emulated_shared);
  const unsigned char *const begin = data + size, *const end = begin + kGuard;
  const unsigned char* const bad = std::find_if(begin, end, [](unsigned char c) { return c != kNobody; });
  if (bad != end) throw_internal("a thread wrote at byte {} of {} bytes of dynamic shared memory", bad - data, size);
}

std::uint32_t shared_address_of(const void* pointer) {
  const SharedBytes& shared = *current->cta->shared;
  const auto* const byte = static_cast<const unsigned char*>(pointer);
  if (byte < shared.data || byte > shared.data + shared.size) {
    fail("a shared address of {}, which is not in the block's dynamic shared memory of {} bytes at {}", pointer,
         shared.size, static_cast<const void*>(shared.data));
  }
  return kSharedAt + static_cast<std::uint32_t>(byte - shared.data);
}

Location locate(std::uint32_t address, std::uint32_t bytes, std::uint32_t alignment, const char* what) {
  const std::uint32_t rank = address >> kOffsetBits;
  if (rank > cluster->ctas.size())
    fail("{}: shared address {:#x} is of CTA {}, the cluster has {}", what, address, rank - 1, cluster->ctas.size());
  Cta& cta = rank == 0 ? *current->cta : *cluster->ctas[rank - 1];
  if (cta.live == 0) fail("{}: CTA {} has ended, its shared memory is gone", what, cta.rank);
  return at(cta, address, bytes, alignment, what);
}

Location locate_own(std::uint32_t address, std::uint32_t bytes, std::uint32_t alignment, const char* what) {
  if (address >> kOffsetBits != 0) {
    fail("{}: takes an address of the CTA's own shared memory (shared::cta), {:#x} was made by mapa for CTA {}", what,
         address, (address >> kOffsetBits) - 1);
  }
  return at(*current->cta, address, bytes, alignment, what);
}

std::uint32_t address_in_rank(std::uint32_t rank, std::uint32_t address) {
  if (rank >= cluster->ctas.size()) fail("mapa: rank {} in a cluster of {}", rank, cluster->ctas.size());
  if (address >> kOffsetBits != 0) fail("mapa: of the address {:#x}, which is already another CTA's", address);
  return (rank + 1) << kOffsetBits | address;
}

void ordinary_write(std::uint32_t address, const void* from, std::uint32_t bytes, const char* what) {
  const Location to = locate_own(address, bytes, bytes, what);
  SharedBytes& shared = *to.cta->shared;
  for (std::uint32_t word = to.offset / 4; word < (to.offset + bytes + 3) / 4; ++word) {
    std::uint16_t& mark = shared.words[word];
    if (mark == SharedBytes::kBarrier) fail("{}: at {:#x}, where a barrier lies", what, address);
    if (shared.to_be_read[word] != 0)
      fail("{}: at {:#x}, which a copy to another CTA may still have to read", what, address);
    if (mark != current->number + 1) {
      mark = static_cast<std::uint16_t>(current->number + 1);
      current->unpublished.push_back(word);
    }
  }
  std::memcpy(to.data, from, bytes);
}

void ordinary_read(std::uint32_t address, void* to, std::uint32_t bytes, const char* what) {
  std::memcpy(to, locate_own(address, bytes, bytes, what).data, bytes);
}

std::string unpublished(const Cta& cta, std::uint32_t offset, std::uint32_t bytes) {
  for (std::uint32_t word = offset / 4; word < (offset + bytes + 3) / 4; ++word) {
    const std::uint16_t mark = cta.shared->words[word];
    if (mark == SharedBytes::kBarrier) return fmt::format("at byte {} of CTA {} lies a barrier", 4 * word, cta.rank);
    if (mark != 0) {
      return fmt::format(
          "byte {} of CTA {}'s dynamic shared memory was written by thread {}, which has not called "
          "publish_shared_writes since",
          4 * word, cta.rank, mark - 1);
    }
  }
  return {};
}

void publish_writes() {
  for (const std::uint32_t word : current->unpublished) {
    std::uint16_t& mark = current->cta->shared->words[word];
    if (mark == current->number + 1) mark = 0;
  }
  current->unpublished.clear();
}

}  // namespace gnomon::emulator
