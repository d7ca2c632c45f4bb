#include "cpu/team.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace gnomon::cpu {
namespace {

// Who took item i in each of two stages; the second stage must find the first complete.
struct Log {
  explicit Log(std::int64_t items) : first(static_cast<std::size_t>(items), -1), second(first) {}
  std::vector<int> first, second;

  template <class Team>
  void run(const Team& team) {
    const auto items = static_cast<std::int64_t>(first.size());
    team.each(items, [&](int worker, std::int64_t i) {
      EXPECT_EQ(first[static_cast<std::size_t>(i)], -1) << "item " << i << " was taken twice";
      first[static_cast<std::size_t>(i)] = worker;
    });
    team.each(items, [&](int worker, std::int64_t i) {
      EXPECT_NE(first[static_cast<std::size_t>(items - 1 - i)], -1) << "the stages overlap";
      second[static_cast<std::size_t>(i)] = worker;
    });
  }
  // Items keep their worker from stage to stage.
  void expect_round_robin(int workers) const {
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(first[i], static_cast<int>(i) % workers) << "item " << i;
      EXPECT_EQ(second[i], first[i]) << "item " << i;
    }
  }
};

constexpr std::int64_t kItems[] = {0, 1, 3, 4, 17};

TEST(Team, SoloTakesEverythingInOrder) {
  std::vector<std::int64_t> order;
  SoloTeam{5}.each(4, [&](int worker, std::int64_t i) {
    EXPECT_EQ(worker, 5);
    order.push_back(i);
  });
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 3}));
}

TEST(Team, ForkIsOneRegionForEachStage) {
  for (const std::int64_t items : kItems) {
    for (const int workers : {1, 3}) {
      Log log(items);
      log.run(ForkTeam{ThreadPool::shared(), workers});
      log.expect_round_robin(workers);
    }
  }
}

TEST(Team, SpmdIsOneRegionWithBarriers) {
  for (const std::int64_t items : kItems) {
    for (const int workers : {1, 3}) {
      Log log(items);
      SpinBarrier barrier(workers);
      ThreadPool::shared().run(workers, [&](int worker) { log.run(SpmdTeam{barrier, worker, workers}); });
      log.expect_round_robin(workers);
    }
  }
}

}  // namespace
}  // namespace gnomon::cpu
