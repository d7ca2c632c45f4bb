#include "cpu/cache_eviction.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "cpu/cpu_info.hpp"
#include "plan/clock.hpp"

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

// A chain of lines in random order, which no prefetcher foresees: each step costs the latency of where its line is.
class Chain {
 public:
  Chain() : next_(kLines * kStep) {
    std::vector<std::size_t> order(kLines);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    for (std::size_t i = 0; i < kLines; ++i) next_[order[i] * kStep] = order[(i + 1) % kLines] * kStep;
  }
  double walk() {
    const double start = steady_clock().now();
    for (std::size_t i = 0; i < kLines; ++i) at_ = next_[at_];
    return steady_clock().now() - start;
  }

 private:
  static constexpr std::size_t kLines = 2048, kStep = 64 / sizeof(std::size_t);  // 128 KiB
  std::vector<std::size_t> next_;
  volatile std::size_t at_ = 0;
};

TEST(CacheEviction, WhatWasInACacheComesFromMemoryAgain) {
  CacheEviction evict(cpu_info().cores);
  Chain chain;
  double warm = 1, cold = 1;  // the best of several: a neighbour only adds
  for (int i = 0; i < 8; ++i) {
    chain.walk();
    warm = std::min(warm, chain.walk());
    evict();
    cold = std::min(cold, chain.walk());
  }
  EXPECT_GT(cold, 2 * warm);
}

}  // namespace
}  // namespace gnomon::cpu
