#include "cpu/thread_pool.hpp"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
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

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

struct ThreadPool::State {
  std::mutex region;  // held by the caller of run()
  std::vector<std::thread> threads;
  alignas(64) std::atomic<int> generation{0};  // of the current region; workers wait for it to change
  std::atomic<bool> stop{false};
  int workers = 0;  // written before `generation`, read after it
  Invoke invoke = nullptr;
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

  int wait_for_region(int seen) {
    for (int i = 0; i < kPolls; ++i) {
      const int now = generation.load(std::memory_order_acquire);
      if (now != seen) return now;
      relax();
    }
    generation.wait(seen, std::memory_order_acquire);
    return generation.load(std::memory_order_acquire);
  }

  // `seen`: the generation when the thread was made; it waits for the next one.
  void work(int worker, int seen) {
    omp_set_num_threads(1);
    for (;;) {
      seen = wait_for_region(seen);
      if (stop.load(std::memory_order_relaxed)) return;
      if (worker < workers) call(worker);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }

  void start(int workers_wanted) {
    while (static_cast<int>(threads.size()) + 1 < workers_wanted) {
      const int worker = static_cast<int>(threads.size()) + 1;
      try {
        threads.emplace_back([this, worker, seen = generation.load()] { work(worker, seen); });
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
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
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
  State& s = *state_;
  std::lock_guard region(s.region);
  if (workers <= 1) return invoke(function, 0);
  s.start(workers);
  s.workers = workers;
  s.invoke = invoke;
  s.function = function;
  s.error = nullptr;
  s.running.store(static_cast<int>(s.threads.size()), std::memory_order_relaxed);
  s.generation.fetch_add(1, std::memory_order_release);
  s.generation.notify_all();
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
