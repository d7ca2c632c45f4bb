// Shared memory as instructions address it: 32 bits, of which the upper eight name a CTA of the cluster (its rank plus
// one; 0: the CTA's own), as `mapa` makes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gnomon::emulator {

struct Cta;

inline constexpr int kMostShared = 232448;        // bytes that a block may have on Hopper
inline constexpr std::uint32_t kSharedAt = 1024;  // where dynamic shared memory begins; below is the system's

struct SharedBytes {
  // Of the calling thread of the system: the arrays that device code declares as `extern __shared__`. NaN at first.
  explicit SharedBytes(int bytes);
  void check_end() const;  // that nobody wrote behind it; in the same thread's life

  unsigned char* data;
  std::uint32_t size;
  // For each word of 4 bytes: 0, or 1 + the thread that wrote it by ordinary stores and has not fenced since, or
  // kBarrier.
  static constexpr std::uint16_t kBarrier = 0xffff;
  std::vector<std::uint16_t> words;
  std::vector<std::uint8_t> to_be_read;  // of each word: copies under way to other CTAs that may not have read it yet
};

struct Location {
  Cta* cta;
  std::uint32_t offset;  // of the dynamic shared memory
  unsigned char* data;
};

std::uint32_t shared_address_of(const void* pointer);
// Bytes of any CTA of the cluster, or only of the thread's own.
Location locate(std::uint32_t address, std::uint32_t bytes, std::uint32_t alignment, const char* what);
Location locate_own(std::uint32_t address, std::uint32_t bytes, std::uint32_t alignment, const char* what);
std::uint32_t address_in_rank(std::uint32_t rank, std::uint32_t address);

// Ordinary loads and stores, and what the copy engine and wgmma do.
void ordinary_write(std::uint32_t address, const void* from, std::uint32_t bytes, const char* what);
void ordinary_read(std::uint32_t address, void* to, std::uint32_t bytes, const char* what);
void publish_writes();
// Why the copy engine and wgmma may not see what lies there; empty: they do.
std::string unpublished(const Cta& cta, std::uint32_t offset, std::uint32_t bytes);

}  // namespace gnomon::emulator
