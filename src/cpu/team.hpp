// Who works on a slice. A pass is written once, as stages of independent items; the team decides who takes which item
// and what a stage costs:
//   SoloTeam   one worker does everything (slices are then spread over the workers): no barrier at all
//   ForkTeam   every stage is a parallel region of its own, as a framework launches its operators
//   SpmdTeam   all workers run the whole pass inside one region; a stage ends in a barrier (the CPU's "captured graph")
#pragma once

#include <cstdint>

#include "cpu/thread_pool.hpp"

namespace gnomon::cpu {

struct SoloTeam {
  int worker;
  template <class F>
  void each(std::int64_t items, F&& f) const {
    for (std::int64_t i = 0; i < items; ++i) f(worker, i);
  }
};

// Items go round robin: an item keeps its worker from stage to stage (its rows stay in that core's cache), and the
// growing cost of causal rows spreads evenly.
struct ForkTeam {
  ThreadPool& pool;
  int workers;
  template <class F>
  void each(std::int64_t items, F&& f) const {
    pool.run(workers, [&](int worker) {
      for (std::int64_t i = worker; i < items; i += workers) f(worker, i);
    });
  }
};

struct SpmdTeam {
  SpinBarrier& barrier;
  int worker, workers;
  template <class F>
  void each(std::int64_t items, F&& f) const {
    for (std::int64_t i = worker; i < items; i += workers) f(worker, i);
    barrier.wait();
  }
};

}  // namespace gnomon::cpu
