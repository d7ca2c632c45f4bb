#include "core/fingerprint.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <vector>

namespace gnomon {
namespace {

TEST(Fingerprint, EveryLengthAndEveryBitCounts) {
  std::vector<unsigned char> bytes(100, 0);
  std::set<std::uint64_t> seen;
  std::size_t made = 0;
  for (std::size_t length = 0; length <= bytes.size(); ++length, ++made)
    seen.insert(hash_bytes(bytes.data(), length, 0));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit, ++made) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    seen.insert(hash_bytes(bytes.data(), bytes.size(), 0));
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
  }
  EXPECT_EQ(seen.size(), made);
}

TEST(Fingerprint, OneBitMovesHalfOfTheHash) {
  std::vector<unsigned char> bytes(4096, 7);
  const std::uint64_t before = hash_bytes(bytes.data(), bytes.size(), 0);
  double moved = 0;
  constexpr int kRounds = 500;
  for (int i = 0; i < kRounds; ++i) {
    const auto at = static_cast<std::size_t>(i * 8 + i % 8);
    bytes[at] ^= 0x80;
    moved += std::popcount(before ^ hash_bytes(bytes.data(), bytes.size(), 0));
    bytes[at] ^= 0x80;
  }
  EXPECT_NEAR(moved / kRounds, 32, 1);
}

TEST(Fingerprint, OrderAndSeedCount) {
  const std::vector<std::uint64_t> ab = {1, 2, 3, 4, 5, 6, 7, 8}, ba = {5, 6, 7, 8, 1, 2, 3, 4};
  EXPECT_NE(hash_bytes(ab.data(), 64, 0), hash_bytes(ba.data(), 64, 0));
  EXPECT_NE(hash_bytes(ab.data(), 64, 0), hash_bytes(ab.data(), 64, 1));
}

}  // namespace
}  // namespace gnomon
