// One thread of an engine that plans problems beside its calls, each on copies of the caller's input and mask.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "plan/backend.hpp"

namespace gnomon {

class Generation;

class Background {
 public:
  struct Job {
    Job(std::shared_ptr<Generation> its_generation, const Problem& its_problem, KeptCall kept)
        : generation(std::move(its_generation)), problem(its_problem), call(std::move(kept)) {}
    const std::shared_ptr<Generation> generation;
    const Problem problem;
    const KeptCall call;
    std::atomic<bool> cancelled{false};  // what it finds out must be thrown away
  };
  static constexpr std::size_t kMostQueued = 16;  // each holds a copy of an input

  // `plan` is called in the thread; what it throws is its problem's failure.
  explicit Background(std::function<void(Job&)> plan);
  // Cancels everything and waits for the thread, that is for a pass or so of the planning under way; so does exit() for
  // an engine that nobody destroyed. Stranded: waits for nothing and frees nothing.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // In a process that was forked since the thread was started: the thread stayed behind.
  bool stranded() const;

  // Queues a problem, copied by `keep` in the caller's thread; the first one starts the thread. Nothing is done for a
  // problem that is queued, is being planned, or has failed. False: the queue is full; ask again at a later call.
  bool offer(const std::shared_ptr<Generation>& generation, const Problem& problem,
             const std::function<KeptCall()>& keep);
  // Drops the problem (all when empty) and its failure; a planning of it that is under way ends early, for nothing.
  void forget(const std::optional<Problem>& problem);
  // The weights are new: drops the work for others, and every failure. On return nothing reads the others' weights any
  // more, whose tensors the caller may then free.
  void keep_only(const std::shared_ptr<Generation>& generation);

  std::int64_t pending() const;  // queued, or being planned
  std::int64_t failed() const;
  std::optional<std::string> failure(const Problem& problem) const;

 private:
  struct State;
  struct AtExit;
  void drop(const std::function<bool(const Job&)>& goes);
  static void work(State& state);
  static void attempt(State& state, Job& job);
  static void fail(State& state, const Problem& problem, const std::string& reason);

  std::unique_ptr<State> state_;
};

}  // namespace gnomon
