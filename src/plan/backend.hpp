// What a backend offers the planner. The planner knows no device; a backend knows no clock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/problem.hpp"
#include "core/tensor.hpp"
#include "plan/candidate.hpp"
#include "plan/input_range.hpp"

namespace gnomon {

// A Candidate bound to packed weights and kernels. `run` makes no decision, no allocation of ours, no string.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual void run(const Call& call) = 0;                  // asynchronous on a device; complete on return on the CPU
  virtual std::int64_t scratch_bytes() const = 0;          // peak memory beyond input, output and weights
  virtual std::int64_t packed_bytes() const { return 0; }  // weights in the plan's own layout
  // Everything but the kernels: what calling, dispatch and barriers cost. False when this plan cannot tell.
  virtual bool run_without_kernels(const Call&) { return false; }
  virtual void poison_scratch() {}  // fills its scratch with NaN: called before a checked run
  // Calls (or slices of calls) that left the range this plan was verified on and were answered in fp32.
  virtual std::int64_t range_fallbacks() const { return 0; }
  virtual void set_verified_range(const InputRange&) {}  // of the verifying call; reduced-precision plans only
};

// What a stored plan depends on. Entries made under another environment are misses.
struct Environment {
  std::string device;                        // "AMD EPYC (family 26 model 2)" or "NVIDIA H200"
  std::map<std::string, std::string> facts;  // must be equal: isa, cores, library versions, Gnomon version, kernel hash
  std::map<std::string, std::string> notes;  // recorded only: driver (a plan made under another driver is re-checked)
};

// Runs plans on one real call without touching the caller's tensors, and judges them.
class Workbench {
 public:
  virtual ~Workbench() = default;
  // Poisons the output with NaN, runs, compares every element with the reference, and checks the guard zones around the
  // output.
  virtual Verdict check(Plan& plan) = 0;
  virtual void before_timed_run() {}  // restores an in-place input; untimed
  // Leaves nothing that a pass reads in a cache: before each single run of Timing::cold, untimed.
  virtual void evict_caches() {}
  virtual void run(Plan& plan) = 0;  // one run on scratch, complete on return
  // So many runs, complete on return: a device may begin one before the host has given it the next.
  virtual void run_repeatedly(Plan& plan, int times) {
    for (int i = 0; i < times; ++i) run(plan);
  }
  // How large the valid rows of the input are, in the backend's own measure: what set_verified_range() is given.
  virtual InputRange input_range() const = 0;
};

// A call on copies of the caller's input and mask. Its output has the caller's layout and, unless it is the input, no
// memory: benches write scratch.
struct KeptCall {
  Call call;
  std::shared_ptr<void> memory;
};

// Plans may be prepared, judged and trimmed by a background thread and a caller at the same time.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Environment environment() const = 0;
  // The reference path as a candidate: always right, never refused but for memory.
  virtual Candidate plain(const Problem& problem) const = 0;
  // The best guess without a clock, from a stated cost model; honours the constraints where it can.
  virtual Candidate estimate(const Problem& problem, const Constraints& constraints) const = 0;
  // Seconds one pass of the plain path should take, by arithmetic on the machine's known rates; good to a factor of
  // three.
  virtual double estimate_plain_seconds(const Problem& problem) const = 0;
  // The order of search, given the incumbent (docs/planner.md).
  virtual std::vector<Group> groups(const Problem& problem, const Candidate& incumbent) const = 0;
  virtual std::optional<Refusal> refuses(const Problem& problem, const Constraints& constraints,
                                         const Candidate& candidate) const = 0;
  // A refusal when timing `candidate` on `part` does not tell how it would run on `whole`, of which it is a prefix.
  virtual std::optional<Refusal> unlike_whole(const Problem& part, const Problem& whole,
                                              const Candidate& candidate) const {
    static_cast<void>(part), static_cast<void>(whole), static_cast<void>(candidate);
    return {};
  }
  // Binds. Throws Error(environment) or std::bad_alloc when memory or a library fails: the planner records a refusal.
  virtual std::unique_ptr<Plan> prepare(const Problem& problem, const Candidate& candidate) = 0;
  // Throws a caller error when nothing may be prepared for this call now: its stream is being captured.
  virtual void require_time_to_plan(const Call& call) const { static_cast<void>(call); }
  // A bench on `call`; computes the reference answer. The call's tensors are only read.
  virtual std::unique_ptr<Workbench> open_workbench(const Problem& problem, const Call& call) = 0;
  // Copies the call for a planning that goes on when its caller has gone; complete on return. The default is for
  // tensors in host memory. Throws Error(environment) or std::bad_alloc when the copies would take too much of it.
  virtual KeptCall keep(const Problem& problem, const Call& call);
  // Labels of what is approximate in a candidate ("q_proj,k_proj in bf16"); empty: fp32 throughout.
  virtual std::vector<std::string> approximations(const Candidate& candidate) const = 0;
  // Ties go to the lower: fewer moving parts, more precise.
  virtual int complexity(const Candidate& candidate) const = 0;
  // One sentence: which resource bounds a pass that takes `seconds`.
  virtual std::string bound(const Problem& problem, const Candidate& candidate, double seconds) const = 0;
  // Weights in the backend's own layouts, which its plans share.
  virtual std::int64_t packed_bytes() const { return 0; }
  // While what it returns lives, a planned call does the host's part alone: the device's driver returns at once and
  // nothing is computed. Null where that cannot be had for this candidate. For benches: it is the whole process's, and
  // no other thread may be inside the backend.
  virtual std::shared_ptr<void> idle_device(const Candidate& candidate) {
    static_cast<void>(candidate);
    return {};
  }
  // Called when plans have died: give back what only they needed. Throws nothing.
  virtual void trim() {}
};

}  // namespace gnomon
