#include "engine/plan_cache.hpp"

#include <algorithm>
#include <mutex>

namespace gnomon {

std::shared_ptr<BoundPlan> PlanCache::find(const Problem& problem) {
  const std::shared_lock lock(mutex_);
  const auto found = plans_.find(problem);
  if (found == plans_.end()) return nullptr;
  found->second->last_used_.store(++clock_, std::memory_order_relaxed);
  return found->second;
}

std::shared_ptr<BoundPlan> PlanCache::take_oldest() {
  const auto oldest = std::min_element(plans_.begin(), plans_.end(), [](const auto& a, const auto& b) {
    return a.second->last_used_.load(std::memory_order_relaxed) < b.second->last_used_.load(std::memory_order_relaxed);
  });
  auto bound = std::move(oldest->second);
  plans_.erase(oldest);
  return bound;
}

std::int64_t PlanCache::put(std::shared_ptr<BoundPlan> bound) {
  std::vector<std::shared_ptr<BoundPlan>> evicted;  // destroyed after the lock: giving memory back takes time
  std::shared_ptr<BoundPlan> replaced;
  const std::unique_lock lock(mutex_);
  bound->last_used_ = ++clock_;
  auto& slot = plans_[bound->record().problem];
  replaced = std::exchange(slot, std::move(bound));
  while (plans_.size() > capacity_) evicted.push_back(take_oldest());
  return static_cast<std::int64_t>(evicted.size());
}

void PlanCache::forget(const Problem& problem) {
  Map::node_type gone;
  const std::unique_lock lock(mutex_);
  gone = plans_.extract(problem);
}

void PlanCache::clear() {
  Map gone;
  const std::unique_lock lock(mutex_);
  gone.swap(plans_);
}

std::vector<std::shared_ptr<BoundPlan>> PlanCache::all() const {
  std::vector<std::shared_ptr<BoundPlan>> result;
  const std::shared_lock lock(mutex_);
  for (const auto& [problem, bound] : plans_) result.push_back(bound);
  return result;
}

}  // namespace gnomon
