// The experiment behind the lower end of the verified range (docs/contract.md): random stacks, each exactly at its
// headroom on N(0,1). How many leave the contract on s * N(0,1)? GNOMON_TEST_COUNT=300 for the table of the page.
#include <algorithm>
#include <cmath>
#include <map>

#include "cpu/cpu_info.hpp"
#include "cpu/plan_case.hpp"
#include "cpu/stack_plan.hpp"

namespace gnomon::test {
namespace {

using cpu::Precision;

constexpr double kScales[] = {1, 0.9, 0.7, 0.5, 0.3, 0.1, 0.01, 0.001};

class InputScaleTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::cpu_info().bf16) GTEST_SKIP() << "this CPU has no bf16 products";
  }
  std::uint64_t any(std::uint64_t n) { return rng_() % n; }
  std::int64_t one_of(std::initializer_list<std::int64_t> values) { return values.begin()[any(values.size())]; }

  Problem some_problem(const std::string& kind) {
    const std::int64_t heads = one_of({1, 2, 4});
    return parse_problem(fmt::format("b{} s{} d{} h{} l{} f{} {} {} {} {}", one_of({1, 2}), one_of({8, 16, 32}),
                                     heads * one_of({8, 16}), heads, one_of({1, 2, 3, 6}), one_of({64, 128, 256}), kind,
                                     any(2) ? "bi" : "causal", any(2) ? "gelu" : "relu", any(3) ? "" : "nobias"));
  }
  // Sharper and flatter attention, smaller and larger biases than at PyTorch's initialisation.
  std::shared_ptr<const Weights> some_weights(const StackConfig& config) {
    const float sharper = std::exp2(static_cast<float>(any(5)) - 1), biased = std::exp2(static_cast<float>(any(5)) - 2);
    return changed(*weights_with_norms(config, rng_), [&](const std::string& name, std::vector<float>& values) {
      const bool attends = name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight");
      const bool is_bias = name.ends_with(".bias") && name.find("norm") == std::string::npos;
      for (float& value : values) value *= attends ? sharper : is_bias ? biased : 1;
    });
  }
  // Share of stacks out of contract, by scale.
  std::map<double, double> broken(const std::string& kind, Precision precision, int stacks) {
    std::map<double, double> shares;
    for (int i = 0; i < stacks; ++i) {
      const Problem problem = some_problem(kind);
      const auto weights = some_weights(problem.config);
      cpu::WeightPacks packs;
      cpu::StackPlan plan(problem, {.precision = precision, .causal_skip = problem.config.causal, .threads = 1},
                          weights, packs, arena_);
      TestTensor input({problem.batch, problem.seq, problem.config.d_model});
      TestTensor output({problem.batch, problem.seq, problem.config.d_model});
      const auto worst = [&](double scale) {
        input.fill_normal(rng_, scale);
        plan.run({input.const_view(), {}, output.view(), nullptr});
        return judge(oracle(*weights, input.const_view(), {}), output.const_view(), Contract{}).worst;
      };
      const double n = static_cast<double>(problem.elements());
      const double headroom = Contract{}.headroom * std::sqrt(std::log(n) / std::log(1000 * n));  // judging_contract
      const double at_headroom = worst(1) / headroom;
      for (const double scale : kScales) shares[scale] += (worst(scale) > at_headroom) / static_cast<double>(stacks);
    }
    std::string line = fmt::format("{:13} {:8}", kind, precision == Precision::bf16 ? "bf16" : "bf16_qk");
    for (const double scale : kScales) line += fmt::format("  {:g}: {:.0f} %", scale, 100 * shares[scale]);
    std::puts(line.c_str());
    return shares;
  }

  Rng rng_{7};
  cpu::Arena arena_;
};

TEST_F(InputScaleTest, SmallerInputsAreHarmlessAfterTheFirstNormAndHarmfulBeforeIt) {
  const int stacks = test_count(60);
  const double noise = 2 * std::sqrt(0.2 * 0.8 / stacks);  // two standard deviations of a share near a fifth
  for (const Precision precision : {Precision::bf16_qk, Precision::bf16}) {
    auto post = broken("post", precision, stacks);
    for (const double scale : kScales) EXPECT_LE(post[scale], post[1] + noise) << "post " << scale;
    for (const char* kind : {"pre", "pre finalnorm"}) {
      auto pre = broken(kind, precision, stacks);
      EXPECT_GT(pre[0.1], pre[1] + noise) << kind;
      EXPECT_LT(pre[0.9], pre[1] + std::max(noise, 0.1)) << kind << ": a tenth is what the headroom holds";
    }
  }
}

}  // namespace
}  // namespace gnomon::test
