// What moves bytes on its own: cp.async and the copy engine.
#pragma once

#include <cstdint>

namespace gnomon::emulator {

void copy_async(std::uint32_t to, const void* from, std::uint32_t bytes, bool there);
void commit_copies();
void wait_copies(std::uint64_t pending);

void bulk_load(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier, std::uint32_t ranks);
void bulk_send(std::uint32_t to, std::uint32_t from, std::uint32_t bytes, std::uint32_t barrier);
void send_registers(std::uint32_t to, const std::uint32_t (&values)[4], std::uint32_t barrier);
void bulk_prefetch(const void* from, std::uint32_t bytes);

inline constexpr std::uint32_t kOwnCta = 0;  // in place of `ranks`

}  // namespace gnomon::emulator
