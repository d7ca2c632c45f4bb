// The process's worker threads. Libraries are called single-threaded from them; no other threads of ours compute on the
// CPU (an engine's background thread plans, and leaves the passes to these).
#pragma once

#include <atomic>
#include <memory>
#include <type_traits>

namespace gnomon::cpu {

// How many threads this process may use: the narrower of its CPU affinity (taskset, cpusets) and its control group's
// quota.
int available_cores();

class ThreadPool {
 public:
  // One pool for the process: two engines never run more threads than there are cores. After fork() the child gets its
  // own.
  static ThreadPool& shared();

  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs fn(worker) on `workers` threads, worker in [0, workers); the caller is worker 0. Returns when all are done.
  // One region at a time: other callers wait, unless they ask for one worker. An exception of any worker is rethrown
  // here (the first one). The calling thread's OpenMP setting is 1 thread inside, and restored.
  template <class F>
  void run(int workers, F&& fn) {
    run_erased(
        workers, [](void* f, int worker) { (*static_cast<std::remove_reference_t<F>*>(f))(worker); }, &fn);
  }

 private:
  ThreadPool();
  using Invoke = void (*)(void* function, int worker);
  void run_erased(int workers, Invoke invoke, void* function);

  struct State;
  std::unique_ptr<State> state_;
};

// A barrier for the threads of one region: spins briefly, then yields (a core may be shared with other programs).
struct BrokenBarrier {};  // thrown by a worker that waited for one that failed; the region's error is the other's

class SpinBarrier {
 public:
  explicit SpinBarrier(int parties) : parties_(parties) {}
  void wait();   // throws BrokenBarrier
  void abort();  // a party failed and will not come: the others must not wait for it

 private:
  const int parties_;
  alignas(64) std::atomic<int> arrived_{0};
  std::atomic<bool> broken_{false};
  alignas(64) std::atomic<int> generation_{0};  // a line of its own: the waiting threads read it
};

}  // namespace gnomon::cpu
