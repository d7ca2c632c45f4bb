// A fast 64-bit hash of memory: no cryptography, but any changed bit changes it with all but 2^-64 of certainty.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gnomon {

// The finaliser of splitmix64: a bijection in which each input bit flips each output bit half of the time.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed);

}  // namespace gnomon
