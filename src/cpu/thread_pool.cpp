#include "cpu/thread_pool.hpp"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <fstream>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "cpu/one_omp_thread.hpp"

namespace gnomon::cpu {
namespace {

// A waiting thread polls for about 50 us before it sleeps: the gaps between the calls of a busy caller are shorter,
// and waking a sleeping thread costs 5 to 50 us.
constexpr int kPolls = 4000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

namespace {

int affine_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// "QUOTA PERIOD" of the control group, in microseconds; "max" as the quota, or no file: unlimited.
int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return std::numeric_limits<int>::max();
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

}  // namespace

int available_cores() {
  static const int cores = std::min({affine_cores(), quota_cores(), 0xffff});
  return cores;
}

struct ThreadPool::State {
  std::mutex region;  // held by the caller of run()
  std::vector<std::thread> threads;
  // The current region's number and its workers in one word, so that a thread that is no part of a region never looks
  // at anything else: with 64 threads, a region of two waits for one.
  alignas(64) std::atomic<std::uint64_t> current{0};
  std::atomic<bool> stop{false};
  Invoke invoke = nullptr;  // written before `current`, read after it
  void* function = nullptr;
  alignas(64) std::atomic<int> running{0};
  std::mutex error_lock;
  std::exception_ptr error;

  void call(int worker) {
    try {
      invoke(function, worker);
    } catch (const BrokenBarrier&) {
    } catch (...) {
      std::lock_guard lock(error_lock);
      if (!error) error = std::current_exception();
    }
  }

  static int workers_of(std::uint64_t region_word) { return static_cast<int>(region_word & 0xffff); }

  void announce(int workers) {
    const std::uint64_t number = (current.load(std::memory_order_relaxed) >> 16) + 1;
    current.store(number << 16 | static_cast<std::uint64_t>(workers), std::memory_order_release);
    current.notify_all();
  }

  std::uint64_t wait_for_region(std::uint64_t seen) {
    for (int i = 0; i < kPolls; ++i) {
      const std::uint64_t now = current.load(std::memory_order_acquire);
      if (now != seen) return now;
      relax();
    }
    current.wait(seen, std::memory_order_acquire);
    return current.load(std::memory_order_acquire);
  }

  // `seen`: the region when the thread was made; it waits for the next one.
  void work(int worker, std::uint64_t seen) {
    omp_set_num_threads(1);
    for (;;) {
      seen = wait_for_region(seen);
      if (stop.load(std::memory_order_relaxed)) return;
      if (worker >= workers_of(seen)) continue;
      call(worker);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }

  void start(int workers_wanted) {
    while (static_cast<int>(threads.size()) + 1 < workers_wanted) {
      const int worker = static_cast<int>(threads.size()) + 1;
      try {
        threads.emplace_back([this, worker, seen = current.load()] { work(worker, seen); });
      } catch (const std::system_error& failure) {
        throw_environment("cannot start worker thread {} of {}: {}", worker, workers_wanted, failure.what());
      }
    }
  }

  void wait_until_done() {
    for (int i = 0; i < kPolls; ++i) {
      if (running.load(std::memory_order_acquire) == 0) return;
      relax();
    }
    for (int left = running.load(std::memory_order_acquire); left != 0;
         left = running.load(std::memory_order_acquire)) {
      running.wait(left, std::memory_order_acquire);
    }
  }
};

ThreadPool::ThreadPool() : state_(std::make_unique<State>()) {}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->announce(0);
  for (std::thread& thread : state_->threads) thread.join();
}

ThreadPool& ThreadPool::shared() {
  // Never destroyed: a program may still run plans while its statics go. A forked child has none of the threads, so it
  // leaves the parent's pool alone and makes its own.
  static std::atomic<ThreadPool*> pool{new ThreadPool};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { pool.store(new ThreadPool); });
  static_cast<void>(registered);
  return *pool.load(std::memory_order_acquire);
}

void ThreadPool::run_erased(int workers, Invoke invoke, void* function) {
  const OneOmpThread one;
  if (workers <= 1) return invoke(function, 0);  // a region of one needs nobody, and waits for nobody
  State& s = *state_;
  std::lock_guard region(s.region);
  s.start(workers);
  s.invoke = invoke;
  s.function = function;
  s.error = nullptr;
  s.running.store(workers - 1, std::memory_order_relaxed);
  s.announce(workers);
  s.call(0);
  s.wait_until_done();
  if (s.error) std::rethrow_exception(s.error);
}

void SpinBarrier::wait() {
  const int generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == parties_) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    return;
  }
  for (int polls = 0; generation_.load(std::memory_order_acquire) == generation; ++polls) {
    if (broken_.load(std::memory_order_relaxed)) throw BrokenBarrier();
    if (polls < kPolls)
      relax();
    else
      std::this_thread::yield();
  }
}

void SpinBarrier::abort() { broken_.store(true, std::memory_order_relaxed); }

}  // namespace gnomon::cpu
