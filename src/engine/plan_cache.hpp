// The plans an engine holds in memory, by problem; the least recently used one is given back.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "plan/backend.hpp"
#include "plan/plan_record.hpp"

namespace gnomon {

// A plan and what it stands on. A running call shares it, so eviction and refresh never pull it away.
class BoundPlan {
 public:
  BoundPlan(std::shared_ptr<Backend> backend, std::unique_ptr<Plan> plan, PlanRecord record, bool provisional,
            std::atomic<std::int64_t>& past_fallbacks)
      : backend_(std::move(backend)),
        plan_(std::move(plan)),
        past_fallbacks_(past_fallbacks),
        record_(std::move(record)),
        provisional_(provisional) {}
  ~BoundPlan() { past_fallbacks_ += plan_->range_fallbacks(); }
  BoundPlan(const BoundPlan&) = delete;
  BoundPlan& operator=(const BoundPlan&) = delete;

  Plan& plan() const { return *plan_; }
  const PlanRecord& record() const { return record_; }
  bool provisional() const { return provisional_; }  // borrowed choices, or an estimate for want of budget
  // One call at a time may have a provisional plan replaced in the background; unclaim() when the queue was full.
  bool claim_planning() {
    return unclaimed_.load(std::memory_order_relaxed) && unclaimed_.exchange(false, std::memory_order_relaxed);
  }
  void unclaim_planning() { unclaimed_.store(true, std::memory_order_relaxed); }

 private:
  friend class PlanCache;
  std::shared_ptr<Backend> backend_;  // before plan_: a plan may use its backend until it dies
  std::unique_ptr<Plan> plan_;
  std::atomic<std::int64_t>& past_fallbacks_;  // keeps the count when the plan is given back
  const PlanRecord record_;
  const bool provisional_;
  std::atomic<bool> unclaimed_{true};
  std::atomic<std::uint64_t> last_used_{0};
};

class PlanCache {
 public:
  explicit PlanCache(std::size_t capacity) : capacity_(capacity) {}

  // The hit path of every call: a shared lock and integer comparisons; no allocation.
  std::shared_ptr<BoundPlan> find(const Problem& problem);
  // Replaces the problem's plan if there is one; returns how many others were given back.
  std::int64_t put(std::shared_ptr<BoundPlan> bound);
  void forget(const Problem& problem);
  void clear();
  std::vector<std::shared_ptr<BoundPlan>> all() const;

 private:
  // What differs between the problems of one engine: the configuration, the contract and the device do not.
  struct Hash {
    std::size_t operator()(const Problem& problem) const noexcept {
      std::uint64_t hash = static_cast<std::uint64_t>(problem.batch) * 0x9E3779B97F4A7C15u;
      hash = (hash ^ static_cast<std::uint64_t>(problem.seq)) * 0xC2B2AE3D27D4EB4Fu;
      hash ^= static_cast<std::uint64_t>(problem.dtype) << 2 | std::uint64_t{problem.mask} << 1 |
              std::uint64_t{problem.inplace};
      return hash ^ hash >> 32;
    }
  };
  using Map = std::unordered_map<Problem, std::shared_ptr<BoundPlan>, Hash>;

  std::shared_ptr<BoundPlan> take_oldest();

  const std::size_t capacity_;
  mutable std::shared_mutex mutex_;
  Map plans_;
  std::atomic<std::uint64_t> clock_{0};
};

}  // namespace gnomon
