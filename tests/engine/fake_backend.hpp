// A backend without arithmetic: every plan writes input * scale, where the scale comes from the weights, and time is
// made up. The world it lives in counts what the engine asks of it, and makes it fail or wait when a test wants that.
#pragma once

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <set>

#include "core/error.hpp"
#include "engine/engine.hpp"
#include "support/tensors.hpp"

namespace gnomon::test {

class FakeClock : public Clock {
 public:
  double now() override { return seconds_ += 1e-7; }
  void pass(double seconds) { seconds_ += seconds; }

 private:
  std::atomic<double> seconds_{0};
};

struct FakeWorld {
  FakeClock clock;
  std::atomic<int> prepared{0}, live_plans{0}, live_backends{0}, runs{0}, benches{0}, open_benches{0},
      most_open_benches{0}, live_plans_at_trim{0};
  bool half_is_faster = false;           // or half precision loses
  std::atomic<double> half_error{1e-4};  // relative; 0.02 is the contract's limit
  std::atomic<bool> prepare_fails{false}, run_out_of_memory{false};
  std::int64_t largest_fast_batch = std::numeric_limits<std::int64_t>::max();  // the fast path refuses more
  std::function<void()> on_bench;                                              // called while a planning runs
  std::function<void()> on_run;                                                // called while a plan runs for a caller
  std::string driver = "1";
  std::string isa = "fake";
};

inline double fake_scale(const Weights& weights) { return 1 + weights.layers()[0].q_proj.weight[0]; }

inline bool fake_half(const Candidate& candidate) { return candidate.get("precision") == "half"; }

class FakePlan : public Plan {
 public:
  FakePlan(FakeWorld& world, const Problem& problem, Candidate candidate, double scale)
      : world_(world), problem_(problem), candidate_(std::move(candidate)), scale_(scale) {
    ++world_.prepared;
    ++world_.live_plans;
  }
  ~FakePlan() override { --world_.live_plans; }

  void run(const Call& call) override {
    if (world_.run_out_of_memory) throw std::bad_alloc();
    ++world_.runs;
    bool half = fake_half(candidate_);
    if (half && std::fabs(value_at(call.input, 0, 0, 0)) > verified_range_) {
      ++fallbacks_;
      half = false;
    }
    const double factor = scale_ * (half ? 1 + world_.half_error : 1);
    for (std::int64_t b = 0; b < call.input.shape[0]; ++b) {
      for (std::int64_t s = 0; s < call.input.shape[1]; ++s) {
        for (std::int64_t i = 0; i < call.input.shape[2]; ++i) {
          set_value(call.output, b, s, i, factor * value_at(call.input, b, s, i));
        }
      }
    }
    if (world_.on_run) world_.on_run();
  }
  double cost() const {
    const double plain = 1e-5 * static_cast<double>(problem_.tokens());
    if (candidate_.get("path") == "plain") return plain;
    return fake_half(candidate_) ? plain / 8 : plain / 4;
  }
  std::int64_t scratch_bytes() const override { return 1000 * problem_.batch; }
  std::int64_t packed_bytes() const override { return 500; }
  std::int64_t range_fallbacks() const override { return fallbacks_; }
  void set_verified_range(const InputRange& range) override { verified_range_ = range.high; }

 private:
  FakeWorld& world_;
  const Problem problem_;
  const Candidate candidate_;
  const double scale_;
  std::atomic<std::int64_t> fallbacks_{0};
  std::atomic<double> verified_range_{std::numeric_limits<double>::infinity()};
};

class FakeBench : public Workbench {
 public:
  FakeBench(FakeWorld& world, const Problem& problem, const Call& call, double scale)
      : world_(world), problem_(problem), call_(call), output_(call.input.shape, problem.dtype) {
    ++world_.benches;
    const int open = ++world_.open_benches;
    world_.most_open_benches = std::max(world_.most_open_benches.load(), open);
    for (std::int64_t b = 0; b < call.input.shape[0]; ++b) {
      for (std::int64_t s = 0; s < call.input.shape[1]; ++s) {
        for (std::int64_t i = 0; i < call.input.shape[2]; ++i) {
          const double x = value_at(call.input, b, s, i);
          expected_.push_back(scale * x);
          if (std::isfinite(x)) input_max_ = std::max(input_max_, std::fabs(x));
        }
      }
    }
    if (world_.on_bench) world_.on_bench();
  }
  ~FakeBench() override { --world_.open_benches; }

  Verdict check(Plan& plan) override {
    output_.fill(std::numeric_limits<double>::quiet_NaN());
    run(plan);
    return judge(expected_, output_.const_view(), problem_.contract);
  }
  void run(Plan& plan) override {
    world_.clock.pass(static_cast<FakePlan&>(plan).cost());
    plan.run({call_.input, call_.mask, output_.view(), nullptr});
  }
  InputRange input_range() const override { return {0, input_max_}; }

 private:
  FakeWorld& world_;
  const Problem problem_;
  const Call call_;
  TestTensor output_;
  std::vector<double> expected_;
  double input_max_ = 0;
};

class FakeBackend : public Backend {
 public:
  FakeBackend(FakeWorld& world, std::shared_ptr<const Weights> weights) : world_(world), weights_(std::move(weights)) {
    ++world_.live_backends;
  }
  ~FakeBackend() override { --world_.live_backends; }

  Environment environment() const override {
    return {"fake device", {{"isa", world_.isa}}, {{"driver", world_.driver}}};
  }
  Candidate plain(const Problem&) const override { return Candidate({{"path", "plain"}, {"precision", "f32"}}); }
  Candidate estimate(const Problem& problem, const Constraints&) const override {
    return Candidate({{"path", problem.batch > world_.largest_fast_batch ? "plain" : "fast"}, {"precision", "f32"}});
  }
  double estimate_plain_seconds(const Problem& problem) const override {
    return 1e-5 * static_cast<double>(problem.tokens());
  }
  std::vector<Group> groups(const Problem&, const Candidate&) const override {
    std::vector<Group> groups = {{"path", {{{"path", "plain"}}, {{"path", "fast"}}}, {}}};
    if (world_.half_is_faster) groups.push_back({"precision", {{{"precision", "f32"}}, {{"precision", "half"}}}, {}});
    return groups;
  }
  std::optional<Refusal> refuses(const Problem& problem, const Constraints& constraints,
                                 const Candidate& candidate) const override {
    for (const Choice& choice : constraints.forced) {
      if (candidate.get(choice.name) != choice.value) return Refusal{choice.name + "=" + choice.value + " is forced"};
    }
    const std::string& path = candidate.get("path");
    if (path != "plain" && path != "fast") return Refusal{"there is no path " + path};
    if (constraints.fp32_only && fake_half(candidate)) return Refusal{"fp32_only"};
    if (path == "fast" && problem.batch > world_.largest_fast_batch) return Refusal{"the batch is too large"};
    return {};
  }
  std::unique_ptr<Plan> prepare(const Problem& problem, const Candidate& candidate) override {
    if (world_.prepare_fails) throw_environment("the fake library is broken");
    return std::make_unique<FakePlan>(world_, problem, candidate, fake_scale(*weights_));
  }
  std::unique_ptr<Workbench> open_workbench(const Problem& problem, const Call& call) override {
    return std::make_unique<FakeBench>(world_, problem, call, fake_scale(*weights_));
  }
  std::vector<std::string> approximations(const Candidate& candidate) const override {
    if (fake_half(candidate)) return {"everything in half"};
    return {};
  }
  int complexity(const Candidate& candidate) const override { return candidate.get("path") == "fast"; }
  std::string bound(const Problem&, const Candidate&, double) const override { return "bound by nothing"; }
  std::int64_t packed_bytes() const override { return 500; }
  void trim() override { world_.live_plans_at_trim = world_.live_plans.load(); }

 private:
  FakeWorld& world_;
  const std::shared_ptr<const Weights> weights_;
};

inline BackendFactory fake_factory(FakeWorld& world) {
  return [&world](std::string_view, std::shared_ptr<const Weights> weights, const Constraints&) {
    return std::make_unique<FakeBackend>(world, std::move(weights));
  };
}

}  // namespace gnomon::test
