// Real memory: what an engine does under a limit, and what it holds on to. Each case is a process of its own.
#include <malloc.h>
#include <sys/resource.h>

#include <fstream>
#include <iostream>

#include "core/memory.hpp"
#include "engine/cpu_case.hpp"
#include "reference/plain_pass.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GNOMON_SHADOW_MEMORY 1  // terabytes of address space, and freed memory kept
#else
#define GNOMON_SHADOW_MEMORY 0
#endif

namespace gnomon::test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

class CpuMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (GNOMON_SHADOW_MEMORY) GTEST_SKIP() << "the sanitizers take memory of their own";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

// In a death test's process nobody prints what failed.
[[noreturn]] void exit_with_failures() {
  const testing::TestResult& result = *testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result.total_part_count(); ++i) std::cerr << result.GetTestPartResult(i).summary() << '\n';
  std::exit(testing::Test::HasFailure());
}

std::int64_t memory_of_this_process(std::string_view key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  return -1;
}

std::int64_t resident() {
  malloc_trim(0);
  return memory_of_this_process("VmRSS");
}

bool is_of_memory(const CandidateReport& report) {
  return report.outcome == Outcome::refused &&
         (report.reason.find("memory") != std::string::npos || report.reason.find("RLIMIT_AS") != std::string::npos);
}

// A fifth more than the plain path takes, and the reserve: packed weights (13 MiB) do not fit.
void answer_in_little_memory() {
  mallopt(M_ARENA_MAX, 1);  // a thread that waits for another's malloc would take 64 MiB of address space for its own
  const CpuCase c{.problem = parse_problem("b16 s16 d256 h4 l4 f1024")};
  Caller caller(c);
  auto options = quick_options();
  options.budget_seconds =
      20;  // so that all of the call is timed, on a busy machine too: a part needs memory beside it
  {
    auto plain = options;
    plain.constraints.forced = {{"path", "plain"}};
    Engine engine(caller.weights(), plain);  // starts the threads, generates the code
    caller.expect_right_answer(engine);
  }
  resident();
  const std::int64_t scratch = reference::PlainPass::scratch_floats(c.problem.config, 16, 16, 16, 2) * 4;
  const std::int64_t needs =
      2 * scratch + 2 * c.problem.elements() * 4;  // plan and reference; answer and scratch output
  const auto limit = static_cast<rlim_t>(memory_of_this_process("VmSize") + kLibraryReserve + needs * 6 / 5);
  const rlimit little{limit, limit};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);

  Engine engine(caller.weights(), options);
  caller.expect_right_answer(engine);
  const auto record = engine.explain(c.problem);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->winner.get("path"), "plain");
  EXPECT_GT(std::ranges::count_if(record->candidates, is_of_memory), 0) << explain_text(*record);
  for (const CandidateReport& report : record->candidates) {
    if (report.outcome == Outcome::refused) {
      EXPECT_FALSE(report.reason.empty()) << report.candidate.to_string();
    }
  }

  const std::int64_t before = resident();
  for (int again = 0; again < 3; ++again) {
    engine.forget({});
    caller.expect_right_answer(engine);  // plans anew
  }
  EXPECT_LE(resident() - before, 2 * kMiB) << "memory is not given back after planning";
}

void answer_three_hundred_lengths() {
  mallopt(M_ARENA_MAX, 1);
  const StackConfig config{.layers = 1, .d_model = 32, .n_heads = 2, .d_ff = 64};
  const Weights weights = Weights::random(config, 1);
  auto options = quick_options();
  options.total_budget_seconds = 1;
  options.max_plans = 8;
  Engine engine(weights, options);
  const auto three_hundred = [&] {
    for (std::int64_t seq = 1; seq <= 300; ++seq) {
      const CpuCase c{.problem = {.batch = 1, .seq = seq, .config = config}};
      Caller(c, weights).expect_right_answer(engine);
    }
    return resident();
  };
  // The first time also takes, for good, what the longest length and the first run of each candidate need.
  const std::int64_t before = three_hundred();
  EXPECT_LE(three_hundred() - before, 2 * kMiB) << "memory grows with the lengths met";
  EXPECT_GT(engine.stats().plans_evicted, 200);
}

TEST_F(CpuMemory, ALittleMoreThanThePlainPathNeeds) {
  EXPECT_EXIT((answer_in_little_memory(), exit_with_failures()), testing::ExitedWithCode(0), "");
}

TEST_F(CpuMemory, ThreeHundredLengthsInARow) {
  EXPECT_EXIT((answer_three_hundred_lengths(), exit_with_failures()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gnomon::test
