// The emulator's machine: a cluster of CTAs, their threads as fibers, and who runs next. The hardware's parts are in
// files of their own: shared_memory, barriers, copies, collectives, wgmma.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <semaphore>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "cuda/emulator/emulate.hpp"
#include "cuda/emulator/fiber.hpp"

namespace gnomon::emulator {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {  // splitmix64
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  bool once_in(std::uint64_t n) { return next() % n == 0; }

 private:
  std::uint64_t state_;
};

struct Cta;
struct Warp;
struct Accumulators;  // wgmma.hpp

struct Thread {
  Index3 thread_index, block_index, block_dim, grid_dim;
  int number = 0, lane = 0;
  std::uint32_t urgency = 0;
  Warp* warp = nullptr;
  Cta* cta = nullptr;
  Fiber fiber;
  bool started = false, exited = false;
  // What a blocked thread is blocked at: a format of two arguments, written out only for a report.
  struct Waiting {
    const char* what = "";
    std::uint64_t first = 0, second = 0;
    const char* name = "";  // before it
    auto operator<=>(const Waiting&) const = default;
    std::string to_string() const { return name + fmt::format(fmt::runtime(what), first, second); }
  } waits_for;

  int block_result = 0;  // of __syncthreads_or
  enum class Cluster { apart, arrived, met } cluster_barrier = Cluster::apart;
  std::uint64_t polls = 0;                 // while nothing happened
  std::vector<std::uint32_t> unpublished;  // words of shared memory that it wrote since its last proxy fence

  struct Copy {  // cp.async: of the group that is open, or of one that is committed
    std::uint64_t group;
    std::function<void()> run;
  };
  std::vector<Copy> copies;
  std::uint64_t copy_groups = 0;

  bool wgmma_fenced = false;
  std::uint64_t products = 0;                               // that it issued
  std::vector<std::uint64_t> product_groups;                // `products` at each commit
  std::vector<std::unique_ptr<Accumulators>> accumulators;  // of products on their way

  Thread();
  ~Thread();
};

extern Thread* current;  // the fiber that runs

// Errors of the thread that runs.
[[noreturn]] void fail_at(const std::string& what);
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  fail_at(fmt::format(text, std::forward<Args>(args)...));
}

// A meeting of the lanes of one mask: the last to come does the work for all.
struct Meeting {
  const char* what;
  void (*work)(Meeting&);
  std::uint32_t mask, arrived = 0;
  void* arguments[32] = {};
  Thread* threads[32] = {};
};

struct Product;  // wgmma.hpp
struct SharedOperand;

struct Warp {
  int number = 0;
  Cta* cta = nullptr;
  Thread* lanes[32] = {};
  std::uint32_t exited = 0;
  std::vector<Meeting> meetings;
  std::deque<std::unique_ptr<Product>> products;  // issued, not all run
  std::uint64_t first_product = 0, products_run = 0;

  Warp();
  ~Warp();
};

struct NamedBarrier {
  std::uint32_t threads = 0;  // 0: all of the CTA that have not exited
  bool any = false;           // of __syncthreads_or
  std::vector<Thread*> waiting;
};

struct MBarrier;     // barriers.cpp
struct SharedBytes;  // shared_memory.cpp

struct Cta {
  int rank = 0;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::unique_ptr<Warp>> warps;
  int live = 0;
  NamedBarrier named[16];
  std::unique_ptr<SharedBytes> shared;
  std::vector<std::pair<std::uint32_t, std::unique_ptr<MBarrier>>> mbarriers;
  std::vector<Thread*> runnable;
  std::uint32_t urgency = 0;
  std::vector<std::vector<std::uint64_t>> product_log;  // of each warpgroup: what its warps must issue alike
  std::vector<std::map<std::uint64_t, SharedOperand>> shared_operands;  // of each warpgroup, by product

  Cta();
  ~Cta();
};

class Cluster {
 public:
  Cluster(const Shape& shape, std::uint64_t seed, std::int64_t first_block, const std::function<void()>& body,
          std::vector<std::unique_ptr<Stack>>& stacks);
  ~Cluster();
  void run();

  std::vector<std::unique_ptr<Cta>> ctas;
  Random random;
  std::vector<std::function<void()>> under_way;  // what the hardware does on its own, each at any moment
  int bulk_copies = 0;                           // of these
  std::vector<Thread*> at_cluster_barrier;       // waiting
  int cluster_arrivals = 0;
  std::uint64_t events = 0;  // that something happened which others may wait for
  // Drawn for the whole run: of four, how often work of the hardware is done at once, and is its destination spoilt
  // before.
  std::uint64_t eagerness = 0, spoils = 0;
  // One switch of threads in so many ends some of that work; when no thread can go on, some ends at once. Where it is
  // many, a copy that nobody waits for lasts as long as it can.
  std::uint64_t lag = 16;
  // By what the next thread is drawn: any; the more urgent of two; or always the most urgent, so that others fall
  // behind as far as they can.
  enum class Order { any, of_two, strict } order = Order::any;
  bool eager() { return random.below(4) < eagerness; }
  bool spoil() { return random.below(4) < spoils; }

  void wake(Thread* thread);
  void fail(std::exception_ptr error);
  void note(std::string what) {
    if (notes++ == 0) first_note = std::move(what);
  }
  std::uint64_t notes = 0;
  std::string first_note;

  static void thread_main(void* thread);

 private:
  friend void block(const Thread::Waiting& what);
  void serve(int rank);
  Thread* choose(int rank);
  void draw_urgencies(Cta& cta);
  std::size_t pick(const Cta& cta);
  void leave();
  std::string deadlock() const;

  const Shape& shape_;
  const std::uint64_t seed_;
  const std::function<void()>& body_;
  std::vector<std::unique_ptr<Fiber>> servers_;  // each CTA's thread of the system
  std::vector<std::unique_ptr<std::binary_semaphore>> turn_;
  Thread* chosen_ = nullptr;
  bool finished_ = false;
  std::exception_ptr error_;
};

extern Cluster* cluster;  // that runs

// The running thread waits until somebody wakes it, or gives way to others.
void block(const Thread::Waiting& what);
void yield();
void yield_sometimes();

// barriers.cpp: what depends on how many threads are left.
void after_exit(Thread& thread);

}  // namespace gnomon::emulator
