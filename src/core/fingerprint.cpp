#include "core/fingerprint.hpp"

#include <array>
#include <cstring>

namespace gnomon {
namespace {

constexpr std::size_t kLanes = 4;  // independent chains: the multiplier's latency is hidden
constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;

__extension__ using Wide = unsigned __int128;

// Both halves of the product: with the low one alone, a flipped top bit would stay one bit, and a second flip in the
// next word of the lane could undo it.
std::uint64_t absorb(std::uint64_t lane, std::uint64_t word) {
  const Wide product = Wide{lane ^ word} * kOdd;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::array<std::uint64_t, kLanes> lanes;
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = mix64(seed + (i + 1) * kOdd);
  const std::size_t length = bytes;
  std::array<std::uint64_t, kLanes> words{};
  for (; bytes >= sizeof(words); bytes -= sizeof(words), at += sizeof(words)) {
    std::memcpy(words.data(), at, sizeof(words));
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = absorb(lanes[i], words[i]);
  }
  words.fill(0);
  if (bytes > 0) std::memcpy(words.data(), at, bytes);
  std::uint64_t hash = mix64(length ^ seed);
  for (std::size_t i = 0; i < kLanes; ++i) hash = mix64(hash + absorb(lanes[i], words[i]));
  return hash;
}

}  // namespace gnomon
