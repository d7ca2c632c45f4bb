#include "cpu/thread_pool.hpp"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.hpp"

namespace gnomon::cpu {
namespace {

void expect_each_worker_once(int workers) {
  std::vector<std::atomic<int>> calls(static_cast<std::size_t>(workers));
  std::mutex lock;
  std::set<std::thread::id> threads;
  ThreadPool::shared().run(workers, [&](int worker) {
    calls.at(static_cast<std::size_t>(worker))++;
    std::lock_guard guard(lock);
    threads.insert(std::this_thread::get_id());
  });
  for (int w = 0; w < workers; ++w)
    ASSERT_EQ(calls[static_cast<std::size_t>(w)], 1) << "worker " << w << " of " << workers;
  ASSERT_EQ(threads.size(), static_cast<std::size_t>(workers));
  ASSERT_TRUE(threads.contains(std::this_thread::get_id())) << "the caller is a worker";
}

TEST(ThreadPool, EveryWorkerRunsOnceInRegionsOfChangingSize) {
  for (int round = 0; round < 20; ++round) {
    for (const int workers : {1, 2, 5, 3, 8, 1, 4}) {
      expect_each_worker_once(workers);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ThreadPool, WorkersWakeAfterTheyHaveGoneToSleep) {
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    expect_each_worker_once(3);
  }
}

TEST(ThreadPool, WaitsForASlowWorker) {
  std::atomic<bool> done{false};
  ThreadPool::shared().run(2, [&](int worker) {
    if (worker == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
  });
  EXPECT_TRUE(done);
}

TEST(ThreadPool, AnExceptionOfAnyWorkerComesBackAndThePoolWorksOn) {
  for (const int thrower : {0, 1, 3}) {
    std::atomic<int> finished{0};
    try {
      ThreadPool::shared().run(4, [&](int worker) {
        if (worker == thrower) throw std::runtime_error("worker " + std::to_string(worker));
        ++finished;
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "worker " + std::to_string(thrower));
    }
    EXPECT_EQ(finished, 3);
    expect_each_worker_once(4);
  }
  EXPECT_THROW(ThreadPool::shared().run(1, [](int) { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_THROW(ThreadPool::shared().run(3, [](int) { throw std::bad_alloc(); }), std::bad_alloc)
      << "all of them at once";
  expect_each_worker_once(2);
}

TEST(ThreadPool, ManyCallersTakeTurns) {
  constexpr int kCallers = 8, kRegions = 50;
  std::atomic<int> inside{0}, most{0}, total{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&, c] {
      for (int i = 0; i < kRegions; ++i) {
        const int workers = 2 + (c + i) % 3;
        ThreadPool::shared().run(workers, [&](int) {
          const int now = ++inside;
          for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
          }
          ++total;
          --inside;
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  int expected = 0;
  for (int c = 0; c < kCallers; ++c) {
    for (int i = 0; i < kRegions; ++i) expected += 2 + (c + i) % 3;
  }
  EXPECT_EQ(total, expected);
  EXPECT_LE(most, 4) << "two regions ran at once";
}

TEST(ThreadPool, LibrariesAreSingleThreadedInsideAndAsBeforeOutside) {
  omp_set_num_threads(3);
  ThreadPool::shared().run(2, [](int worker) { EXPECT_EQ(omp_get_max_threads(), 1) << "worker " << worker; });
  EXPECT_EQ(omp_get_max_threads(), 3);
  ThreadPool::shared().run(1, [](int) { EXPECT_EQ(omp_get_max_threads(), 1); });
  EXPECT_EQ(omp_get_max_threads(), 3);
  EXPECT_THROW(ThreadPool::shared().run(2, [](int) { throw std::runtime_error(""); }), std::runtime_error);
  EXPECT_EQ(omp_get_max_threads(), 3);
  omp_set_num_threads(1);
}

#if !defined(__SANITIZE_THREAD__)  // a forked child of a threaded process is beyond the thread sanitizer
TEST(ThreadPool, AForkedChildHasAPoolOfItsOwn) {
  expect_each_worker_once(3);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(10);  // a child that waits for its parent's threads would wait for ever
    std::atomic<int> calls{0};
    for (int i = 0; i < 20; ++i) ThreadPool::shared().run(3, [&](int) { ++calls; });
    _exit(calls == 60 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  expect_each_worker_once(3);
}
#endif

TEST(AvailableCores, AtLeastOneAndNoMoreThanTheMachineHas) {
  EXPECT_GE(available_cores(), 1);
  EXPECT_LE(available_cores(), static_cast<int>(sysconf(_SC_NPROCESSORS_CONF)));
}

// Between two barriers everybody sees what everybody wrote before the first.
TEST(SpinBarrier, SeparatesStages) {
  constexpr int kWorkers = 4, kStages = 200;
  SpinBarrier barrier(kWorkers);
  std::vector<int> stage(kWorkers, 0);
  std::atomic<int> early{0};
  ThreadPool::shared().run(kWorkers, [&](int worker) {
    for (int s = 1; s <= kStages; ++s) {
      stage[static_cast<std::size_t>(worker)] = s;
      barrier.wait();
      for (const int other : stage) early += other != s;
      barrier.wait();
    }
  });
  EXPECT_EQ(early, 0);
}

TEST(SpinBarrier, OfOneNeverWaits) {
  SpinBarrier barrier(1);
  for (int i = 0; i < 3; ++i) barrier.wait();
}

TEST(SpinBarrier, AbortReleasesThoseWhoWaitAndThoseWhoComeLater) {
  SpinBarrier barrier(3);
  std::atomic<int> released{0};
  ThreadPool::shared().run(3, [&](int worker) {
    if (worker == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return barrier.abort();
    }
    if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    try {
      barrier.wait();
    } catch (const BrokenBarrier&) {
      ++released;
    }
  });
  EXPECT_EQ(released, 2);
}

TEST(SpinBarrier, TheRegionReportsTheFailureAndNotTheWaiting) {
  SpinBarrier barrier(3);
  try {
    ThreadPool::shared().run(3, [&](int worker) {
      if (worker != 1) return barrier.wait();
      barrier.abort();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the others are done first
      throw_environment("worker 1 failed");
    });
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "worker 1 failed");
  }
}

}  // namespace
}  // namespace gnomon::cpu
