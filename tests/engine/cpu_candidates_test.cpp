// Every choice of the CPU backend forced in turn, cold and from a warm store; and random problems under random choices.
#include <set>

#include "core/error.hpp"
#include "engine/cpu_case.hpp"

namespace gnomon::test {
namespace {

// Every (name, value) that the backend's search would try for a problem, and every switch both ways.
std::vector<Choice> choices_of(const Problem& problem) {
  const auto weights = std::make_shared<const Weights>(Weights::random(problem.config, 1));
  const auto backend = make_backend("cpu", weights, {});
  std::vector<Choice> choices;
  const auto add = [&](const Choice& choice) {
    if (std::find(choices.begin(), choices.end(), choice) == choices.end()) choices.push_back(choice);
  };
  for (const Candidate& start : {backend->plain(problem), backend->estimate(problem, {})}) {
    for (const Choice& choice : start.choices()) {
      add(choice);
      if (choice.value == "on" || choice.value == "off") {
        add({choice.name, "on"});
        add({choice.name, "off"});
      }
    }
    for (const Group& group : backend->groups(problem, start)) {
      for (const auto& alternative : group.alternatives) {
        for (const Choice& choice : alternative) add(choice);
      }
    }
  }
  return choices;
}

// What is forced may contradict itself, and bf16 may break the contract on an input: nothing else may fail.
bool is_honest_refusal(const Error& error, const Constraints& constraints) {
  const std::string text = error.what();
  const bool names_all = text.find("under " + constraints.to_string()) != std::string::npos;
  const bool broke =
      text.find("out of contract") != std::string::npos || text.find("contract's limit") != std::string::npos;
  const bool bf16_broke = broke && constraints.to_string().find("bf16") != std::string::npos;
  return !constraints.forced.empty() && names_all && (error.kind() == ErrorKind::caller || bf16_broke);
}

// True when some candidate with the choice answered; a choice that leaves no candidate must say so.
bool expect_right_cold_and_warm(const CpuCase& c, const Choice& choice) {
  SCOPED_TRACE(choice.name + "=" + choice.value);
  const TemporaryDirectory folder;
  auto options = quick_options();
  options.plan_directory = folder.path();
  options.effort = Effort::estimate;
  options.constraints.forced = {choice};
  Caller caller(c);
  Engine cold(caller.weights(), options);
  try {
    caller.expect_right_and_repeatable(cold);
  } catch (const Error& error) {
    EXPECT_TRUE(is_honest_refusal(error, options.constraints)) << error.what();
    return false;
  }
  const auto record = *cold.explain(problem_of(c));
  EXPECT_EQ(record.winner.get(choice.name), choice.value);
  const auto bits = caller.output().storage();

  options.effort = Effort::stored;
  Engine warm(caller.weights(), options);
  caller.expect_right_and_repeatable(warm);
  EXPECT_EQ(warm.stats().timing_runs, 0);
  EXPECT_EQ(warm.stats().store_hits, 1);
  EXPECT_EQ(warm.explain(problem_of(c))->winner, record.winner);
  EXPECT_EQ(caller.output().storage(), bits) << "the same plan, other bits";
  return true;
}

TEST(CpuCandidates, EveryChoiceForcedColdAndWarm) {
  std::set<std::string> switches_forced;
  for (const bool causal : {false, true}) {
    for (const auto mask :
         {std::optional<MaskKind>(), std::optional(MaskKind::holes), std::optional(MaskKind::one_empty)}) {
      const CpuCase c{.problem = {.batch = 5,
                                  .seq = 20,
                                  .config = {.layers = 2, .d_model = 32, .n_heads = 4, .d_ff = 48, .causal = causal}},
                      .mask = mask};
      SCOPED_TRACE(to_string(c));
      for (const Choice& choice : choices_of(problem_of(c))) {
        if (expect_right_cold_and_warm(c, choice)) switches_forced.insert(choice.name + "=" + choice.value);
      }
    }
  }
  for (const char* name :
       {"fused_attention", "causal_skip", "mask_elision", "fused_qkv", "fused_norm", "gemm_gelu", "graph"}) {
    for (const char* value : {"=on", "=off"})
      EXPECT_TRUE(switches_forced.contains(name + std::string(value))) << name << value;
  }
}

// A whole candidate drawn at random from the choices, so that combinations that rarely win get run too.
std::vector<Choice> random_candidate(const Problem& problem, Rng& rng) {
  const auto choices = choices_of(problem);
  std::vector<Choice> forced;
  for (const Choice& choice : choices) {
    const bool known =
        std::any_of(forced.begin(), forced.end(), [&](const Choice& f) { return f.name == choice.name; });
    if (known || rng() % 3 != 0) continue;
    std::vector<Choice> values;
    std::copy_if(choices.begin(), choices.end(), std::back_inserter(values),
                 [&](const Choice& f) { return f.name == choice.name; });
    forced.push_back(values[rng() % values.size()]);
  }
  return forced;
}

CpuCase random_case(std::uint64_t seed) {
  Rng rng(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(high - low + 1));
  };
  CpuCase c;
  c.seed = seed;
  c.problem.batch = pick(1, 6);
  c.problem.seq = rng() % 4 == 0 ? pick(1, 4) : pick(1, 70);
  StackConfig& config = c.problem.config;
  config.layers = pick(1, 2);
  config.n_heads = pick(1, 4);
  config.d_model = config.n_heads * pick(1, 20);
  config.d_ff = pick(1, 70);
  config.norm = rng() % 2 ? NormPlacement::post : NormPlacement::pre;
  config.final_norm = rng() % 3 == 0;
  config.activation = static_cast<Activation>(rng() % 3);
  config.causal = rng() % 2;
  config.bias = rng() % 4 != 0;
  c.problem.dtype = rng() % 2 ? DType::f32 : rng() % 2 ? DType::f16 : DType::bf16;
  c.problem.inplace = rng() % 4 == 0;
  if (rng() % 2) c.mask = kMaskKinds[rng() % std::size(kMaskKinds)];
  c.input = rng() % 8 == 0 ? Layout::broadcast : kOwnLayouts[rng() % std::size(kOwnLayouts)];
  c.output = kOwnLayouts[rng() % std::size(kOwnLayouts)];
  return c;
}

TEST(CpuCandidates, RandomProblemsUnderRandomChoices) {
  const std::uint64_t seed = test_seed();
  const int count = test_count(200);
  int refused = 0;
  for (int n = 0; n < count && !::testing::Test::HasFailure(); ++n) {
    CpuCase c = random_case(seed + static_cast<std::uint64_t>(n));
    Rng rng(c.seed);
    auto options = quick_options();
    options.budget_seconds = 0.01;
    if (n % 2) {
      options.effort = Effort::estimate;
      options.constraints.forced = random_candidate(problem_of(c), rng);
    }
    SCOPED_TRACE("case " + std::to_string(n) + ": " + to_string(c) + " " + options.constraints.to_string());
    Caller caller(c);
    Engine engine(caller.weights(), options);
    try {
      caller.expect_right_and_repeatable(engine);
    } catch (const Error& error) {
      ++refused;
      EXPECT_TRUE(is_honest_refusal(error, options.constraints)) << error.what();
    }
  }
  EXPECT_LT(refused, count / 2) << "too few of the random choices could run";
}

}  // namespace
}  // namespace gnomon::test
