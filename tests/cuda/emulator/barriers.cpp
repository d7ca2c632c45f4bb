#include "cuda/emulator/barriers.hpp"

#include "cuda/emulator/collectives.hpp"
#include "cuda/emulator/engine.hpp"
#include "cuda/emulator/shared_memory.hpp"

namespace gnomon::emulator {
namespace {

constexpr std::int64_t kMostBytes = (1 << 20) - 1;  // that an mbarrier can count
constexpr std::uint64_t kMostPolls = 100'000;

void release(NamedBarrier& barrier) {
  for (Thread* thread : barrier.waiting) {
    thread->block_result = barrier.any;
    cluster->wake(thread);
  }
  barrier.waiting.clear();
  barrier.any = false;
}

// `threads` 0: all that have not exited.
void arrive_and_wait(std::uint32_t id, std::uint32_t threads, bool value) {
  Cta& cta = *current->cta;
  NamedBarrier& barrier = cta.named[id];
  if (barrier.waiting.empty()) {
    barrier.threads = threads;
  } else if (barrier.threads != threads) {
    fail("barrier {} of {} threads, where others wait for {} (0: all of the block)", id, threads, barrier.threads);
  }
  barrier.any |= value;
  barrier.waiting.push_back(current);
  if (barrier.waiting.size() == (threads == 0 ? static_cast<std::uint32_t>(cta.live) : threads)) {
    barrier.waiting.pop_back();
    current->block_result = barrier.any;
    release(barrier);
    yield_sometimes();
  } else {
    block({threads == 0 ? "__syncthreads" : "barrier {} of {} threads", id, threads});
  }
}

int live_in_cluster() {
  int live = 0;
  for (const auto& cta : cluster->ctas) live += cta->live;
  return live;
}

void release_cluster_if_all_arrived() {
  if (cluster->cluster_arrivals == 0 || cluster->cluster_arrivals != live_in_cluster()) return;
  cluster->cluster_arrivals = 0;
  for (const auto& cta : cluster->ctas) {
    for (const auto& thread : cta->threads) {
      if (thread->cluster_barrier == Thread::Cluster::arrived) thread->cluster_barrier = Thread::Cluster::met;
    }
  }
  for (Thread* thread : cluster->at_cluster_barrier) cluster->wake(thread);
  cluster->at_cluster_barrier.clear();
}

MBarrier* find(Cta& cta, std::uint32_t offset) {
  for (const auto& [at, barrier] : cta.mbarriers) {
    if (at == offset) return barrier.get();
  }
  return nullptr;
}

MBarrier& barrier_at(const Location& at, std::uint32_t address, const char* what) {
  MBarrier* const barrier = find(*at.cta, at.offset);
  if (!barrier) fail("{}: no mbarrier was initialised at {:#x} of CTA {}", what, address, at.cta->rank);
  if (!barrier->fenced && (at.cta != current->cta || barrier->initialised_by != current->number)) {
    fail("{}: thread {} initialised the mbarrier at {:#x} and has not called fence_init since", what,
         barrier->initialised_by, address);
  }
  return *barrier;
}

Thread::Waiting for_phase(std::uint32_t offset, std::uint32_t parity) {
  return {"mbarrier at {:#x}, phase of parity {}", offset + kSharedAt, parity};
}

void finish_phase_if_all_in(MBarrier& barrier) {
  ++cluster->events;
  if (barrier.missing != 0 || barrier.bytes != 0) return;
  const auto parity = static_cast<std::uint32_t>(barrier.phase++ & 1);
  barrier.missing = barrier.arrivals;
  std::vector<Thread*> others;
  for (Thread* thread : barrier.waiting) {
    if (thread->waits_for.second == parity) {
      cluster->wake(thread);
    } else {
      others.push_back(thread);
    }
  }
  barrier.waiting = std::move(others);
}

}  // namespace

void sync_threads() { arrive_and_wait(0, 0, false); }

bool sync_threads_or(bool value) {
  arrive_and_wait(0, 0, value);
  return current->block_result != 0;
}

void named_barrier(std::uint32_t id, std::uint32_t threads) {
  if (id > 15 || threads == 0 || threads % 32 != 0) fail("bar.sync {}, {}: 16 barriers, of whole warps", id, threads);
  arrive_and_wait(id, threads, false);
}

bool named_barrier_any(std::uint32_t id, std::uint32_t threads, bool value) {
  if (id > 15 || threads == 0 || threads % 32 != 0)
    fail("barrier.red {}, {}: 16 barriers, of whole warps", id, threads);
  arrive_and_wait(id, threads, value);
  return current->block_result != 0;
}

void cluster_arrive() {
  if (current->cluster_barrier != Thread::Cluster::apart)
    fail("barrier.cluster.arrive: a second time, with no wait between");
  current->cluster_barrier = Thread::Cluster::arrived;
  ++cluster->cluster_arrivals;
  release_cluster_if_all_arrived();
  yield_sometimes();
}

void cluster_wait() {
  if (current->cluster_barrier == Thread::Cluster::apart) fail("barrier.cluster.wait: without an arrival");
  if (current->cluster_barrier == Thread::Cluster::arrived) {
    cluster->at_cluster_barrier.push_back(current);
    block({"the cluster's barrier"});
  }
  current->cluster_barrier = Thread::Cluster::apart;
}

void cluster_barrier() {
  cluster_arrive();
  cluster_wait();
}

void after_exit(Thread& thread) {
  Cta& cta = *thread.cta;
  for (NamedBarrier& barrier : cta.named) {
    if (barrier.waiting.empty() || barrier.threads != 0) continue;
    if (static_cast<int>(barrier.waiting.size()) == cta.live) release(barrier);
  }
  if (thread.cluster_barrier != Thread::Cluster::apart) fail("a thread ends between barrier.cluster.arrive and wait");
  release_cluster_if_all_arrived();
  finish_meetings(*thread.warp);
}

void mbarrier_init(std::uint32_t address, std::uint32_t arrivals) {
  const Location at = locate_own(address, 8, 8, "mbarrier.init");
  if (arrivals == 0 || arrivals > kMostBytes) fail("mbarrier.init: {} arrivals", arrivals);
  MBarrier* barrier = find(*at.cta, at.offset);
  if (barrier && !barrier->waiting.empty()) fail("mbarrier.init: threads wait at {:#x}", address);
  if (!barrier) {
    at.cta->mbarriers.emplace_back(at.offset, std::make_unique<MBarrier>());
    barrier = at.cta->mbarriers.back().second.get();
  }
  *barrier = {};
  barrier->arrivals = barrier->missing = arrivals;
  barrier->initialised_by = current->number;
  at.cta->shared->words[at.offset / 4] = at.cta->shared->words[at.offset / 4 + 1] = SharedBytes::kBarrier;
}

void mbarrier_fence_init() {
  for (auto& [at, barrier] : current->cta->mbarriers) barrier->fenced |= barrier->initialised_by == current->number;
}

void mbarrier_arrive(std::uint32_t address, bool remote, std::uint32_t expected_bytes) {
  const Location at = remote ? locate(address, 8, 8, "mbarrier.arrive") : locate_own(address, 8, 8, "mbarrier.arrive");
  MBarrier& barrier = barrier_at(at, address, "mbarrier.arrive");
  if (barrier.missing == 0) {
    fail("mbarrier.arrive: at {:#x} of CTA {}, phase {} has all its {} arrivals and waits for {} bytes", address,
         at.cta->rank, barrier.phase, barrier.arrivals, barrier.bytes);
  }
  barrier.bytes += expected_bytes;
  if (barrier.bytes > kMostBytes) fail("mbarrier.arrive.expect_tx: {} bytes are more than it counts", barrier.bytes);
  --barrier.missing;
  finish_phase_if_all_in(barrier);
  yield_sometimes();
}

bool mbarrier_try_wait(std::uint32_t address, std::uint32_t parity) {
  const Location at = locate_own(address, 8, 8, "mbarrier.try_wait");
  MBarrier& barrier = barrier_at(at, address, "mbarrier.try_wait");
  if (cluster->random.once_in(8)) yield();
  if ((barrier.phase & 1) != parity) return true;
  barrier.waiting.push_back(current);
  block(for_phase(at.offset, parity));
  return (barrier.phase & 1) != parity;  // not when the next phase has ended too: the hardware says no either
}

bool mbarrier_test_wait(std::uint32_t address, std::uint32_t parity) {
  const Location at = locate_own(address, 8, 8, "mbarrier.test_wait");
  MBarrier& barrier = barrier_at(at, address, "mbarrier.test_wait");
  if ((barrier.phase & 1) != parity) return true;
  // A loop over this one must let others go on, and ends where nobody does anything any more.
  const std::uint64_t before = cluster->events;
  yield();
  if (cluster->events != before) {
    current->polls = 0;
  } else if (++current->polls > kMostPolls) {
    fail("polls for ever, nobody else can go on: {}{}", for_phase(at.offset, parity).to_string(),
         barriers_report(*cluster));
  }
  return (barrier.phase & 1) != parity;
}

void require_mbarrier(Cta& cta, std::uint32_t offset, const char* what) {
  const MBarrier* const barrier = find(cta, offset);
  if (!barrier) fail("{}: no mbarrier was initialised at {:#x} of CTA {}", what, offset + kSharedAt, cta.rank);
  if (!barrier->fenced)
    fail("{}: the mbarrier at {:#x} of CTA {} was not fenced (fence_init)", what, offset + kSharedAt, cta.rank);
}

void mbarrier_complete(Cta& cta, std::uint32_t offset, std::uint32_t bytes) {
  MBarrier& barrier = *find(cta, offset);
  barrier.bytes -= bytes;
  if (barrier.bytes < -kMostBytes)
    throw_internal("mbarrier at {:#x} of CTA {}: {} bytes arrived that nobody expects", offset + kSharedAt, cta.rank,
                   -barrier.bytes);
  finish_phase_if_all_in(barrier);
}

std::string barriers_report(const Cluster& of) {
  std::string text;
  for (const auto& cta : of.ctas) {
    for (const auto& [at, b] : cta->mbarriers) {
      text += fmt::format("\n  CTA {} mbarrier {:#x}: phase {}, {} of {} arrivals and {} bytes are missing", cta->rank,
                          at + kSharedAt, b->phase, b->missing, b->arrivals, b->bytes);
    }
  }
  return text + fmt::format("\n  {} copies or products are under way", of.under_way.size());
}

}  // namespace gnomon::emulator
