// Barriers: of the CTA (named, __syncthreads), of the cluster, and mbarriers in shared memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gnomon::emulator {

class Cluster;
struct Cta;
struct Thread;

void sync_threads();
bool sync_threads_or(bool value);
void named_barrier(std::uint32_t id, std::uint32_t threads);
bool named_barrier_any(std::uint32_t id, std::uint32_t threads, bool value);  // by any of them
void cluster_barrier();
void cluster_arrive();
void cluster_wait();

// A phase ends when its arrivals and its bytes are in: then the parity of `phase` is the next one's.
struct MBarrier {
  std::uint32_t arrivals = 0;  // of a phase
  std::uint32_t missing = 0;   // of this phase
  std::int64_t bytes = 0;      // expected less arrived
  std::uint64_t phase = 0;
  bool fenced = false;  // others than who initialised it may use it
  int initialised_by = 0;
  std::vector<Thread*> waiting;
};

void mbarrier_init(std::uint32_t address, std::uint32_t arrivals);
void mbarrier_fence_init();
void mbarrier_arrive(std::uint32_t address, bool remote, std::uint32_t expected_bytes);
bool mbarrier_try_wait(std::uint32_t address, std::uint32_t parity);  // waits
bool mbarrier_test_wait(std::uint32_t address, std::uint32_t parity);

// For the copy engine: the barrier of a CTA, initialised and fenced; and the arrival of bytes there.
void require_mbarrier(Cta& cta, std::uint32_t offset, const char* what);
void mbarrier_complete(Cta& cta, std::uint32_t offset, std::uint32_t bytes);

std::string barriers_report(const Cluster& cluster);  // the state of all, for a deadlock

}  // namespace gnomon::emulator
