#include "cuda/emulator/engine.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <thread>

#include "cuda/emulator/barriers.hpp"
#include "cuda/emulator/shared_memory.hpp"
#include "cuda/emulator/wgmma.hpp"

namespace gnomon::emulator {
namespace {

// Device code is one huge function with its arrays on the stack where a GPU has registers: of what is reserved only
// what is touched is ever taken.
constexpr std::size_t kStackBytes = std::size_t{512} << 10;

// After an error the other threads, too, leave what they are in, so that nothing stays allocated.
struct Abandoned {};

std::string place_of(const Thread& t) {
  return fmt::format("block {} (CTA {} of its cluster) thread {}", t.block_index.x, t.cta->rank, t.number);
}

}  // namespace

Thread* current = nullptr;
Cluster* cluster = nullptr;

Thread::Thread() = default;
Thread::~Thread() = default;
Warp::Warp() = default;
Warp::~Warp() = default;
Cta::Cta() = default;
Cta::~Cta() = default;

void fail_at(const std::string& what) {
  throw_internal("{}{}", current ? place_of(*current) + ": " : std::string(), what);
}

void block(const Thread::Waiting& what) {
  Thread* const self = current;
  self->waits_for = what;
  Fiber::change(self->fiber, *cluster->servers_[static_cast<std::size_t>(self->cta->rank)]);
  if (cluster->error_) throw Abandoned();
}

void yield() {
  current->cta->runnable.push_back(current);
  block({"its turn"});
}

void yield_sometimes() {
  if (cluster->random.once_in(8)) yield();
}

void Cluster::wake(Thread* thread) {
  ++events;
  thread->cta->runnable.push_back(thread);
}

void Cluster::fail(std::exception_ptr error) {
  if (!error_) error_ = std::move(error);
}

Cluster::Cluster(const Shape& shape, std::uint64_t seed, std::int64_t first_block, const std::function<void()>& body,
                 std::vector<std::unique_ptr<Stack>>& stacks)
    : random(seed + 0x632be59bd9b4e019u * static_cast<std::uint64_t>(first_block + 1)),
      shape_(shape),
      seed_(seed),
      body_(body) {
  eagerness = random.below(5);
  lag = random.below(2) == 0 ? 16 : 1 << 16;
  spoils = random.below(5);
  order = std::array{Order::any, Order::of_two, Order::strict}[random.below(3)];
  std::size_t stack = 0;
  for (int rank = 0; rank < shape.cluster; ++rank) {
    auto cta = std::make_unique<Cta>();
    cta->rank = rank;
    cta->live = shape.threads;
    for (int w = 0; w * 32 < shape.threads; ++w) {
      auto warp = std::make_unique<Warp>();
      warp->number = w;
      warp->cta = cta.get();
      warp->exited = shape.threads - 32 * w >= 32 ? 0 : ~0u << (shape.threads - 32 * w);
      cta->warps.push_back(std::move(warp));
    }
    cta->product_log.resize((cta->warps.size() + 3) / 4);
    cta->shared_operands.resize(cta->product_log.size());
    for (int t = 0; t < shape.threads; ++t) {
      auto thread = std::make_unique<Thread>();
      thread->number = t;
      thread->lane = t % 32;
      thread->cta = cta.get();
      thread->warp = cta->warps[static_cast<std::size_t>(t / 32)].get();
      thread->warp->lanes[t % 32] = thread.get();
      thread->thread_index.x = static_cast<unsigned>(t);
      thread->block_index.x = static_cast<unsigned>(first_block + rank);
      thread->block_dim = {static_cast<unsigned>(shape.threads), 1, 1};
      thread->grid_dim = {static_cast<unsigned>(shape.blocks), 1, 1};
      if (stack == stacks.size()) stacks.push_back(std::make_unique<Stack>(kStackBytes));
      thread->fiber.start(*stacks[stack++], &Cluster::thread_main, thread.get());
      cta->runnable.push_back(thread.get());
      cta->threads.push_back(std::move(thread));
    }
    draw_urgencies(*cta);
    ctas.push_back(std::move(cta));
    servers_.push_back(std::make_unique<Fiber>());
    turn_.push_back(std::make_unique<std::binary_semaphore>(0));
  }
}

Cluster::~Cluster() = default;

void Cluster::thread_main(void* argument) {
  Thread* const self = static_cast<Thread*>(argument);
  self->started = true;
  try {
    cluster->body_();
    self->exited = true;
    --self->cta->live;
    self->warp->exited |= 1u << self->lane;
    ++cluster->events;
    after_exit(*self);
    if (self->cta->live == 0) check_finished_products(*self->cta);
  } catch (const Abandoned&) {
  } catch (...) {
    cluster->fail(std::current_exception());
  }
  self->exited = true;
  Fiber::change(self->fiber, *cluster->servers_[static_cast<std::size_t>(self->cta->rank)], true);
}

// Of a CTA and its threads: whole warpgroups, warps or single lanes stay behind together.
void Cluster::draw_urgencies(Cta& cta) {
  cta.urgency = static_cast<std::uint32_t>(random.next());
  const int together = std::array{128, 32, 1}[random.below(3)];
  for (const auto& thread : cta.threads) {
    thread->urgency = thread->number % together == 0
                          ? static_cast<std::uint32_t>(random.next())
                          : cta.threads[static_cast<std::size_t>(thread->number - 1)]->urgency;
  }
}

std::size_t Cluster::pick(const Cta& cta) {
  const auto& list = cta.runnable;
  const auto urgency = [&](std::size_t i) { return list[i]->urgency; };
  std::size_t best = random.below(list.size());
  if (order == Order::any || random.once_in(order == Order::strict ? 512 : 8)) return best;
  if (order == Order::of_two) {
    const std::size_t other = random.below(list.size());
    return urgency(other) > urgency(best) ? other : best;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (urgency(i) > urgency(best)) best = i;
  }
  return best;
}

Thread* Cluster::choose(int rank) {
  for (bool idle = false;;) {
    if (error_) {
      for (const auto& cta : ctas) {
        for (const auto& thread : cta->threads) {
          if (thread->started && !thread->exited) return thread.get();
        }
      }
      return nullptr;
    }
    if (!under_way.empty() && (idle || random.once_in(lag))) {
      const std::size_t i = random.below(under_way.size());
      std::swap(under_way[i], under_way.back());
      const auto work = std::move(under_way.back());
      under_way.pop_back();
      work();
    }
    // Mostly of the same CTA, for another is another thread of the system.
    Cta* cta = ctas[static_cast<std::size_t>(rank)].get();
    if (cta->runnable.empty() || random.once_in(64)) {
      cta = ctas[random.below(ctas.size())].get();
      for (const auto& other : ctas) {
        if (order == Order::strict && !other->runnable.empty() && other->urgency > cta->urgency) cta = other.get();
      }
    }
    for (std::size_t i = 0; cta->runnable.empty() && i < ctas.size(); ++i) cta = ctas[i].get();
    if (cta->runnable.empty()) {
      if (std::ranges::all_of(ctas, [](const auto& c) { return c->live == 0; })) return nullptr;
      if (under_way.empty()) throw_internal("{}", deadlock());
      idle = true;
      continue;
    }
    if (random.once_in(order == Order::strict ? 4096 : 256)) draw_urgencies(*cta);
    auto& list = cta->runnable;
    const std::size_t i = pick(*cta);
    std::swap(list[i], list.back());
    Thread* const thread = list.back();
    list.pop_back();
    return thread;
  }
}

// The last act of whoever finds that nothing is left to do: the others' shared memory is still there.
void Cluster::leave() {
  try {
    if (!error_ && bulk_copies > 0) {
      throw_internal("block {}: the kernel ended while {} pieces of bulk copies were under way",
                     ctas[0]->threads[0]->block_index.x, bulk_copies);
    }
    for (const auto& cta : ctas) cta->shared->check_end();
  } catch (...) {
    fail(std::current_exception());
  }
  finished_ = true;
  for (auto& turn : turn_) turn->release();
}

void Cluster::serve(int rank) {
  const auto r = static_cast<std::size_t>(rank);
  for (;;) {
    if (!chosen_) {
      try {
        chosen_ = choose(rank);
      } catch (...) {
        fail(std::current_exception());
      }
      if (!chosen_ && error_) chosen_ = choose(rank);
      if (!chosen_) return leave();
    }
    if (chosen_->cta->rank != rank) {
      turn_[static_cast<std::size_t>(chosen_->cta->rank)]->release();
      turn_[r]->acquire();
      if (finished_) return;
      continue;
    }
    current = std::exchange(chosen_, nullptr);
    Fiber::change(*servers_[r], current->fiber);
    current = nullptr;
  }
}

std::string Cluster::deadlock() const {
  std::map<Thread::Waiting, std::string> groups;  // what for: who
  for (const auto& cta : ctas) {
    for (std::size_t t = 0; t < cta->threads.size();) {
      const Thread& first = *cta->threads[t];
      std::size_t end = t + 1;
      const auto same = [&](const Thread& o) { return o.exited == first.exited && o.waits_for == first.waits_for; };
      while (end < cta->threads.size() && same(*cta->threads[end])) ++end;
      if (!first.exited) {
        std::string& who = groups[first.waits_for];
        const std::string range = end - t == 1 ? fmt::format("{}", t) : fmt::format("{}-{}", t, end - 1);
        who += fmt::format("{}{}", who.empty() ? "" : ", ", fmt::format("{}:{}", cta->rank, range));
      }
      t = end;
    }
  }
  std::string text = "deadlock: nobody can go on. CTA:threads that wait:";
  for (const auto& [what, who] : groups) text += fmt::format("\n  {}: {}", who, what.to_string());
  return text + barriers_report(*this);
}

void Cluster::run() {
  cluster = this;
  // Device code keeps shared memory in thread_local variables: each CTA of a cluster has a thread of the system, and
  // they take turns.
  std::vector<std::jthread> others;
  std::binary_semaphore ready(0);
  ctas[0]->shared = std::make_unique<SharedBytes>(shape_.dynamic_shared_bytes);
  for (int rank = 1; rank < shape_.cluster; ++rank) {
    others.emplace_back([this, rank, &ready] {
      ctas[static_cast<std::size_t>(rank)]->shared = std::make_unique<SharedBytes>(shape_.dynamic_shared_bytes);
      ready.release();
      turn_[static_cast<std::size_t>(rank)]->acquire();
      if (!finished_) serve(rank);
    });
    ready.acquire();
  }
  serve(0);
  others.clear();
  cluster = nullptr;
  if (!error_) return;
  try {
    std::rethrow_exception(error_);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("emulator, seed {}: {}", seed_, error.what()));
  }
}

Report run(const Shape& shape, std::uint64_t seed, const std::function<void()>& thread) {
  if (cluster) throw_internal("emulate: kernels run one after another, one is running");
  if (shape.blocks < 1 || shape.threads < 1 || shape.threads > 1024 || shape.cluster < 1 ||
      shape.blocks % shape.cluster != 0) {
    throw_internal("emulate: {} blocks of {} threads in clusters of {}", shape.blocks, shape.threads, shape.cluster);
  }
  static std::vector<std::unique_ptr<Stack>> stacks;  // kept for the next run
  std::vector<std::int64_t> order(static_cast<std::size_t>(shape.blocks / shape.cluster));
  std::iota(order.begin(), order.end(), 0);
  Random random(seed);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  Report report;
  for (const std::int64_t i : order) {
    Cluster one(shape, seed, i * shape.cluster, thread, stacks);
    one.run();
    if (report.unpublished_reads == 0) report.first_unpublished_read = one.first_note;
    report.unpublished_reads += one.notes;
  }
  return report;
}

}  // namespace gnomon::emulator
