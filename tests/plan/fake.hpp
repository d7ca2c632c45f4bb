// A clock that only runs when a fake plan runs, and a backend whose candidates behave, well or badly, as a test says.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "plan/host_workbench.hpp"
#include "plan/planner.hpp"

namespace gnomon::fake {

class FakeClock final : public Clock {
 public:
  double now() override { return now_; }
  // `drift`: how much slower the machine gets in a second.
  void pass(double seconds) {
    const bool busy = burst_every > 0 && std::fmod(now_, burst_every) < burst_length;
    now_ += seconds * (1 + drift * now_) * (busy ? 2 : 1);
  }
  double drift = 0;
  double burst_every = 0, burst_length = 0;  // a neighbour halves the speed now and then

 private:
  double now_ = 0;
};

enum class Fault {
  none,
  writes_half,
  writes_nothing,
  writes_past_end,
  writes_before,
  nan,
  throws,
  bad_alloc,
  odd_throw
};

struct Behaviour {
  double seconds = 1e-3;      // of a pass of the whole problem
  double cold_seconds = 0;    // of one on emptied caches; 0: the same
  double noise = 0;           // relative standard deviation
  Fault fault = Fault::none;  // from run number `from_run` on (0: always)
  int from_run = 0;
  double error = 0;  // added to every element
  bool prepare_bad_alloc = false;
  std::string prepare_error;
  std::string refusal;
  int complexity = 0;
  bool wrong_on_whole = false;
  std::int64_t sequences_to_show = 1;  // a smaller part does not tell how it runs on the whole
};

// The "stack": y = 2x + 1, element by element.
inline void reference(const Call& call) {
  const auto* in = static_cast<const float*>(call.input.data);
  auto* out = static_cast<float*>(call.output.data);
  for (std::int64_t b = 0; b < call.input.shape[0]; ++b) {
    for (std::int64_t s = 0; s < call.input.shape[1]; ++s) {
      for (std::int64_t i = 0; i < call.input.shape[2]; ++i) {
        const auto& si = call.input.strides;
        const auto& so = call.output.strides;
        out[b * so[0] + s * so[1] + i * so[2]] = 2 * in[b * si[0] + s * si[1] + i * si[2]] + 1;
      }
    }
  }
}

class FakeBackend;

class FakePlan final : public Plan {
 public:
  FakePlan(FakeBackend& backend, const Behaviour& behaviour);
  ~FakePlan() override;
  void run(const Call& call) override;
  std::int64_t scratch_bytes() const override { return 4096; }
  void set_verified_range(const InputRange& range) override { verified_range = range; }

  InputRange verified_range;

 private:
  FakeBackend& backend_;
  Behaviour behaviour_;
  int runs_ = 0;
};

class FakeWorkbench final : public HostWorkbench {
 public:
  FakeWorkbench(FakeBackend& backend, const Problem& problem, const Call& call);
  void evict_caches() override;

 private:
  FakeBackend& backend_;
};

class FakeBackend final : public Backend {
 public:
  FakeBackend(FakeClock& its_clock, const Problem& its_problem) : clock(its_clock), problem(its_problem) {}

  Environment environment() const override { return {"Fake device", {{"isa", "none"}}, {}}; }
  Candidate plain(const Problem&) const override { return plain_candidate; }
  Candidate estimate(const Problem&, const Constraints&) const override { return estimate_candidate; }
  double estimate_plain_seconds(const Problem& part) const override { return cost(plain_candidate, part); }
  std::vector<Group> groups(const Problem&, const Candidate&) const override { return the_groups; }
  std::optional<Refusal> refuses(const Problem&, const Constraints&, const Candidate& candidate) const override {
    const Behaviour its = behaviour(candidate);
    return its.refusal.empty() ? std::nullopt : std::optional(Refusal{its.refusal});
  }
  std::optional<Refusal> unlike_whole(const Problem& part, const Problem&, const Candidate& candidate) const override {
    const std::int64_t needs = behaviour(candidate).sequences_to_show;
    return part.batch < needs ? std::optional(Refusal{fmt::format("needs {} sequences", needs)}) : std::nullopt;
  }
  std::unique_ptr<Plan> prepare(const Problem& part, const Candidate& candidate) override {
    const Behaviour its = behaviour(candidate);
    ++prepared[candidate.to_string() + (part == problem ? "" : " on a part")];
    if (its.prepare_bad_alloc || alive >= most_alive) throw std::bad_alloc();
    if (!its.prepare_error.empty()) throw Error(ErrorKind::environment, its.prepare_error);
    return std::make_unique<FakePlan>(*this, its);
  }
  std::unique_ptr<Workbench> open_workbench(const Problem& part, const Call& call) override {
    if (part.elements() > largest_bench) throw std::bad_alloc();
    benches.push_back(part);
    clock.pass(cost(plain_candidate, part));
    return std::make_unique<FakeWorkbench>(*this, part, call);
  }
  std::vector<std::string> approximations(const Candidate& candidate) const override {
    const std::string* const precision = candidate.find("precision");
    return precision && *precision != "fp32" ? std::vector{"in " + *precision} : std::vector<std::string>{};
  }
  int complexity(const Candidate& candidate) const override { return behaviour(candidate).complexity; }
  std::string bound(const Problem&, const Candidate&, double) const override { return "bound by nothing real"; }
  void trim() override { alive_at_trim = alive; }

  double cost(const Candidate& candidate, const Problem& part) const {
    return behaviour(candidate).seconds * static_cast<double>(part.elements()) /
           static_cast<double>(problem.elements());
  }

  FakeClock& clock;
  Problem problem;
  Candidate plain_candidate = Candidate::parse("path=plain fuse=off");
  Candidate estimate_candidate = Candidate::parse("path=plain fuse=off");
  std::vector<Group> the_groups;
  std::function<Behaviour(const Candidate&)> behaviour = [](const Candidate&) { return Behaviour{}; };
  std::int64_t largest_bench = std::numeric_limits<std::int64_t>::max();
  int most_alive = std::numeric_limits<int>::max();

  double eviction_seconds = 10e-3;

  bool cold = false;  // the caches are empty
  int alive = 0, alive_at_trim = -1, evictions = 0;
  std::int64_t runs = 0;
  std::map<std::string, int> prepared;
  std::vector<Problem> benches;
  std::mt19937_64 random{20240607};
};

inline FakeWorkbench::FakeWorkbench(FakeBackend& backend, const Problem& problem, const Call& call)
    : HostWorkbench(problem, call, reference), backend_(backend) {}

inline void FakeWorkbench::evict_caches() {
  ++backend_.evictions;
  backend_.cold = true;
  backend_.clock.pass(backend_.eviction_seconds);
}

inline FakePlan::FakePlan(FakeBackend& backend, const Behaviour& behaviour) : backend_(backend), behaviour_(behaviour) {
  ++backend_.alive;
}
inline FakePlan::~FakePlan() { --backend_.alive; }

inline void FakePlan::run(const Call& call) {
  ++backend_.runs;
  const double share = static_cast<double>(call.input.elements()) / static_cast<double>(backend_.problem.elements());
  std::normal_distribution<double> noise(0, behaviour_.noise);
  const bool cold = std::exchange(backend_.cold, false) && behaviour_.cold_seconds > 0;
  backend_.clock.pass((cold ? behaviour_.cold_seconds : behaviour_.seconds) * share * std::exp(noise(backend_.random)));
  const Fault fault = runs_++ >= behaviour_.from_run ? behaviour_.fault : Fault::none;
  if (fault == Fault::throws) throw std::runtime_error("injected");
  if (fault == Fault::bad_alloc) throw std::bad_alloc();
  if (fault == Fault::odd_throw) throw 7;
  if (fault == Fault::writes_nothing) return;
  Call done = call;
  if (fault == Fault::writes_half)
    done.input.shape[0] = done.output.shape[0] = (call.input.shape[0] + 1) / 2 - (call.input.shape[0] == 1);
  reference(done);
  auto* out = static_cast<float*>(call.output.data);
  const auto last = call.output.elements();  // outputs here are dense
  for (std::int64_t i = 0; behaviour_.error != 0 && i < last; ++i) out[i] += static_cast<float>(behaviour_.error);
  if (behaviour_.wrong_on_whole && share == 1) out[last - 1] += 1;
  if (fault == Fault::writes_past_end) out[last] = 1;
  if (fault == Fault::writes_before) out[-1] = 1;
  if (fault == Fault::nan) out[last / 2] = std::numeric_limits<float>::quiet_NaN();
}

// A problem with its tensors, and a backend for it.
struct World {
  explicit World(const std::string& text = "b4 s4 d8 h1 l1 f8")
      : problem(parse_problem(text)), input(static_cast<std::size_t>(problem.elements())), output(input.size(), -7.0f) {
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 13) - 6;
    const std::array<std::int64_t, 3> shape{problem.batch, problem.seq, problem.config.d_model};
    call.input = ConstTensorView::contiguous(input.data(), DType::f32, shape);
    call.output = TensorView::contiguous(problem.inplace ? input.data() : output.data(), DType::f32, shape);
  }
  PlanResult plan() { return Planner(backend, clock).plan(problem, call, options); }

  // "fast" costs 1 ms, everything else is told by `seconds`; plain 4 ms.
  void candidates(std::map<std::string, Behaviour> by_path) {
    std::vector<std::vector<Choice>> alternatives;
    for (const auto& [path, behaviour] : by_path) {
      if (path != "plain") alternatives.push_back({{"path", path}});
    }
    backend.the_groups = {{"path", alternatives, {}}};
    by_path.try_emplace("plain", Behaviour{.seconds = 4e-3});
    backend.behaviour = [by_path](const Candidate& candidate) { return by_path.at(candidate.get("path")); };
  }

  Problem problem;
  std::vector<float> input, output;
  Call call;
  FakeClock clock;
  FakeBackend backend{clock, problem};
  PlannerOptions options;
};

inline const CandidateReport& report_on(const PlanRecord& record, const std::string& path) {
  for (const CandidateReport& report : record.candidates) {
    if (report.candidate.get("path") == path) return report;
  }
  throw std::runtime_error("no report on " + path);
}

}  // namespace gnomon::fake
