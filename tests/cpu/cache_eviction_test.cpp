#include "cpu/cache_eviction.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cpu/cpu_info.hpp"

namespace gnomon::cpu {
namespace {

TEST(CacheEviction, WritesTwiceTheSharedCacheAndEveryPrivateOne) {
  const SharedCache l3 = shared_cache();
  EXPECT_GE(l3.cores, 1);
  for (const int workers : {1, 2, 64}) {
    const CacheEviction evict(workers);
    EXPECT_GE(evict.bytes(), 2 * l3.bytes * workers / std::max(workers, l3.cores));
    EXPECT_GE(evict.bytes(), 2 * workers * cpu_info().l2_bytes);
  }
}

// That its writes empty the caches shows in time alone, which no test judges: the machine's neighbours decide it too.
TEST(CacheEviction, EveryLineIsWrittenOnceACall) {
  for (const int workers : {1, 2, 5}) {
    CacheEviction evict(workers);
    EXPECT_TRUE(evict.buffer().empty());
    evict();
    const std::vector<char> before(evict.buffer().begin(), evict.buffer().end());
    ASSERT_GE(static_cast<std::int64_t>(before.size()), evict.bytes());
    evict();
    std::int64_t lines = 0;
    for (std::int64_t at = 0; at < evict.bytes(); at += 64) {
      lines += evict.buffer()[at] == static_cast<char>(before[at] + 1);
    }
    EXPECT_EQ(lines, evict.bytes() / 64) << workers << " workers";
  }
}

}  // namespace
}  // namespace gnomon::cpu
