#include "engine/background.hpp"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <thread>

#include "core/error.hpp"
#include "core/log.hpp"
#include "engine/engine_state.hpp"

namespace gnomon {

struct Background::State {
  std::function<void(Job&)> plan;
  mutable std::mutex mutex;
  std::condition_variable changed;
  // All below under the mutex.
  std::deque<std::shared_ptr<Job>> queue;
  std::shared_ptr<Job> under_way;
  bool busy = false;                            // with `under_way`, until nothing of it is left
  std::map<std::string, std::string> failures;  // by problem: why
  std::int64_t failed = 0;
  bool ending = false;
  std::thread thread;
  std::atomic<pid_t> process{0};  // that started the thread; written under the mutex

  bool known(const std::shared_ptr<Generation>& generation, const Problem& problem) const {
    const auto same = [&](const std::shared_ptr<Job>& job) {
      return job && !job->cancelled && job->generation == generation && job->problem == problem;
    };
    return same(under_way) || std::ranges::any_of(queue, same) || failures.contains(to_string(problem));
  }
  void end();
};

// The threads of engines that are left to exit(), which destroys what a planning uses.
struct Background::AtExit {
  static AtExit& all() {
    static AtExit& immortal = *new AtExit;
    return immortal;
  }
  static void add(State* state) {
    static const bool registered = std::atexit(end_all) == 0;
    static_cast<void>(registered);
    const std::lock_guard lock(all().mutex);
    all().running.insert(state);
  }
  static void remove(State* state) {
    const std::lock_guard lock(all().mutex);
    all().running.erase(state);
  }
  static void end_all() {
    AtExit& threads = all();
    const std::lock_guard lock(threads.mutex);
    for (State* const state : threads.running) state->end();
  }
  std::mutex mutex;
  std::set<State*> running;  // under the mutex
};

bool Background::stranded() const {
  const pid_t process = state_->process;
  return process != 0 && process != getpid();
}

void Background::State::end() {
  if (process != getpid()) return;
  {
    const std::lock_guard lock(mutex);
    ending = true;
    queue.clear();
    if (under_way) under_way->cancelled = true;
  }
  changed.notify_all();
  if (thread.joinable()) thread.join();
}

Background::Background(std::function<void(Job&)> plan) : state_(std::make_unique<State>()) {
  state_->plan = std::move(plan);
}

Background::~Background() {
  if (state_->process == 0) return;
  if (stranded()) {
    state_.release();  // the thread, and whoever held the mutex, stayed in the parent
    return;
  }
  AtExit::remove(state_.get());
  state_->end();
}

bool Background::offer(const std::shared_ptr<Generation>& generation, const Problem& problem,
                       const std::function<KeptCall()>& keep) {
  std::unique_lock lock(state_->mutex);
  const auto settled = [&] { return state_->known(generation, problem) || state_->queue.size() >= kMostQueued; };
  try {
    if (!settled()) {
      lock.unlock();  // copying can take long
      auto job = std::make_shared<Job>(generation, problem, keep());
      lock.lock();
      if (!settled()) {
        const bool first = state_->process == 0;
        if (first) state_->thread = std::thread([state = state_.get()] { work(*state); });
        if (first) state_->process = getpid();
        state_->queue.push_back(std::move(job));
        lock.unlock();
        state_->changed.notify_all();
        if (first) AtExit::add(state_.get());
        return true;
      }
    }
    return state_->known(generation, problem);
  } catch (const std::bad_alloc&) {
    if (lock) lock.unlock();
    fail(*state_, problem, "no memory for a copy of its input");
  } catch (const std::exception& error) {
    if (lock) lock.unlock();
    fail(*state_, problem, error.what());
  }
  return true;
}

void Background::work(State& state) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return state.ending || !state.queue.empty(); });
    if (state.ending) return;
    std::shared_ptr<Job> job = std::move(state.queue.front());
    state.queue.pop_front();
    state.under_way = job;
    state.busy = true;
    lock.unlock();
    try {
      attempt(state, *job);
    } catch (const std::bad_alloc&) {
      // There is no memory to say so either; the provisional plan stays.
    }
    lock.lock();
    state.under_way.reset();
    lock.unlock();
    job.reset();  // its copies, and perhaps the last of its weights
    lock.lock();
    state.busy = false;
    state.changed.notify_all();
  }
}

void Background::attempt(State& state, Job& job) {
  const auto failed = [&](const char* reason) {
    if (!job.cancelled) fail(state, job.problem, reason);
  };
  try {
    state.plan(job);
  } catch (const std::bad_alloc&) {
    failed("out of memory");
  } catch (const std::exception& error) {
    failed(error.what());
  } catch (...) {
    failed("an exception of an unknown type");
  }
}

void Background::fail(State& state, const Problem& problem, const std::string& reason) {
  const std::string name = to_string(problem);
  {
    const std::lock_guard lock(state.mutex);
    ++state.failed;
    state.failures.insert_or_assign(name, reason);
  }
  log::write(log::Level::warn,
             fmt::format("{} keeps its provisional plan: planning it in the background failed: {}", name, reason));
}

void Background::drop(const std::function<bool(const Job&)>& goes) {
  std::deque<std::shared_ptr<Job>> gone;  // destroyed after the lock
  const std::lock_guard lock(state_->mutex);
  const auto first =
      std::stable_partition(state_->queue.begin(), state_->queue.end(), [&](const auto& job) { return !goes(*job); });
  std::move(first, state_->queue.end(), std::back_inserter(gone));
  state_->queue.erase(first, state_->queue.end());
  if (state_->under_way && goes(*state_->under_way)) state_->under_way->cancelled = true;
}

void Background::forget(const std::optional<Problem>& problem) {
  drop([&](const Job& job) { return !problem || job.problem == *problem; });
  const std::lock_guard lock(state_->mutex);
  std::erase_if(state_->failures,
                [&](const auto& failure) { return !problem || failure.first == to_string(*problem); });
}

void Background::keep_only(const std::shared_ptr<Generation>& generation) {
  const auto outdated = [&](const Job& job) { return job.generation != generation; };
  drop(outdated);
  std::unique_lock lock(state_->mutex);
  state_->failures.clear();
  if (stranded()) return;
  state_->changed.wait(
      lock, [&] { return !state_->busy || (state_->under_way != nullptr && !outdated(*state_->under_way)); });
}

std::int64_t Background::pending() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<std::int64_t>(state_->queue.size()) + (state_->busy ? 1 : 0);
}

std::int64_t Background::failed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failed;
}

std::optional<std::string> Background::failure(const Problem& problem) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->failures.find(to_string(problem));
  return found == state_->failures.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace gnomon
