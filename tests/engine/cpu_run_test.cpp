// What a planned call costs besides its kernels, and what happens when many share an engine or a plan folder.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "core/log.hpp"
#include "engine/cpu_case.hpp"
#include "plan/memory_need.hpp"
#include "support/allocation_counter.hpp"

extern char** environ;

namespace gnomon::test {
namespace {

using ::testing::HasSubstr;

CpuCase usual_case() {
  return {.problem = {.batch = 4, .seq = 24, .config = {.layers = 2, .d_model = 32, .n_heads = 4, .d_ff = 64}},
          .mask = MaskKind::holes};
}

TEST(CpuRun, APlannedCallAllocatesNothingOfOurs) {
  for (const char* path : {"stack", "plain"}) {
    for (const bool inplace : {false, true}) {
      CpuCase c = usual_case();
      c.problem.inplace = inplace;
      auto options = quick_options();
      options.constraints.forced = {{"path", path}};
      Caller caller(c);
      Engine engine(caller.weights(), options);
      const Call call = caller.call();
      caller.expect_right_answer(engine);
      engine.forward(call);
      const AllocationCounter counter;
      for (int n = 0; n < 20; ++n) engine.forward(call);
      EXPECT_EQ(counter.ours(), 0) << path;
      RecordProperty(std::string("library_allocations_") + path, std::to_string(counter.libraries()));
    }
  }
}

TEST(CpuRun, EightThreadsShareOneEngine) {
  const Weights weights = Weights::random(usual_case().problem.config, 1);
  Engine engine(weights, quick_options());
  std::vector<std::jthread> threads;
  for (std::uint64_t n = 0; n < 8; ++n) {
    threads.emplace_back([&, n] {
      for (std::uint64_t i = 0; i < 6; ++i) {
        CpuCase c = usual_case();
        c.problem.batch = static_cast<std::int64_t>(1 + (n + i) % 3 * 4);
        c.mask = (n + i) % 2 ? c.mask : std::nullopt;
        c.seed = n * 10 + i;
        Caller caller(c, weights);
        caller.expect_right_and_repeatable(engine);
      }
    });
  }
}

TEST(CpuRun, PlansShareThePackedWeightsAndAreCountedOnce) {
  CpuCase c = usual_case();
  auto options = quick_options();
  options.effort = Effort::estimate;
  options.constraints.forced = {{"slices", "1"}};  // products of the same rows, whatever the batch
  const Weights weights = Weights::random(c.problem.config, 1);
  Engine engine(weights, options);
  Caller(c, weights).expect_right_answer(engine);
  const std::int64_t one = engine.stats().packed_bytes;
  EXPECT_GT(one, 0);
  c.problem.batch = 64;
  Caller(c, weights).expect_right_answer(engine);
  EXPECT_EQ(engine.stats().packed_bytes, one);
  engine.forget({});
  EXPECT_EQ(engine.stats().packed_bytes, 0);
}

TEST(CpuRun, ThePlainPathUsesTheWeightsWhereTheyLie) {
  auto options = quick_options();
  options.constraints.forced = {{"path", "plain"}};
  Caller caller({.problem = parse_problem("b2 s5 d32 h4 l2 f48")});
  Engine engine(caller.weights(), options);
  caller.expect_right_answer(engine);
  EXPECT_EQ(engine.stats().packed_bytes, 0);
}

// Neither the plain path nor what would be the estimate fits: a single sequence at a time does.
TEST(CpuRun, LittleMemoryMeansSmallSlices) {
  CpuCase c{.problem = parse_problem("b32 s16 d32 h4 l2 f48")};
  auto options = quick_options();
  options.constraints.memory_limit = tensor_bytes(c.problem) + 2 * weight_bytes(c.problem.config, 4) + (40 << 10);
  Caller caller(c);
  Engine engine(caller.weights(), options);
  caller.expect_right_answer(engine);
  EXPECT_LE(engine.stats().scratch_bytes, 40 << 10);
  EXPECT_EQ(engine.explain(c.problem)->winner.get("slices"), "1");
}

// ---- processes

// Not a test of its own: what the spawned processes run.
TEST(CpuWorker, AnswersFromTheSharedFolder) {
  const char* folder = std::getenv("GNOMON_TEST_WORKER_FOLDER");
  if (folder == nullptr) GTEST_SKIP() << "run by CpuProcesses";
  auto options = quick_options();
  options.plan_directory = *folder ? std::optional<std::filesystem::path>(folder) : std::nullopt;  // "": the default
  for (std::int64_t batch : {1, 4, 16}) {
    CpuCase c = usual_case();
    c.problem.batch = batch;
    expect_right(c, options);
  }
}

pid_t start_worker(const std::vector<std::string>& settings, bool bare_environment = false) {
  std::vector<std::string> texts = settings;
  for (char** entry = environ; *entry != nullptr && !bare_environment; ++entry) texts.push_back(*entry);
  std::vector<char*> environment;
  for (std::string& text : texts) environment.push_back(text.data());
  environment.push_back(nullptr);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string filter = "--gtest_filter=CpuWorker.*", brief = "--gtest_brief=1", name = self;
  char* arguments[] = {name.data(), filter.data(), brief.data(), nullptr};
  pid_t child = -1;
  EXPECT_EQ(posix_spawn(&child, self.c_str(), nullptr, nullptr, arguments, environment.data()), 0);
  return child;
}

int wait_for(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(CpuProcesses, EightShareOneColdFolderAndOneIsKilled) {
  const TemporaryDirectory folder;
  std::vector<pid_t> children;
  for (int n = 0; n < 8; ++n) children.push_back(start_worker({"GNOMON_TEST_WORKER_FOLDER=" + folder.path().string()}));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  kill(children[0], SIGKILL);
  wait_for(children[0]);
  for (std::size_t n = 1; n < children.size(); ++n) EXPECT_EQ(wait_for(children[n]), 0) << "process " << n;

  auto options = quick_options();
  options.plan_directory = folder.path();
  Caller caller(usual_case());
  Engine warm(caller.weights(), options);
  caller.expect_right_and_repeatable(warm);
  EXPECT_EQ(warm.stats().store_hits, 1);
  EXPECT_EQ(warm.stats().timing_runs, 0);
}

TEST(CpuProcesses, NoHomeAndAFolderThatCannotBeMade) {
  EXPECT_EQ(wait_for(start_worker({"GNOMON_TEST_WORKER_FOLDER="}, /*bare_environment=*/true)), 0);
  EXPECT_EQ(wait_for(start_worker({"GNOMON_TEST_WORKER_FOLDER=/dev/null/plans"})), 0);
}

class LogCapture {
 public:
  LogCapture() {
    log::set_sink([this](log::Level level, std::string_view text) {
      if (level <= log::Level::warn) warnings.emplace_back(text);
    });
  }
  ~LogCapture() { log::set_sink({}); }
  std::vector<std::string> warnings;
};

TEST(CpuProcesses, ABrokenStoreIsAMissWithOneWarning) {
  const TemporaryDirectory folder;
  auto options = quick_options();
  options.plan_directory = folder.path();
  Caller caller(usual_case());
  std::filesystem::path file;
  {
    Engine engine(caller.weights(), options);
    caller.expect_right_answer(engine);
    file = engine.store().file();
  }
  std::stringstream whole;
  whole << std::ifstream(file).rdbuf();
  const std::string text = whole.str();
  const std::pair<const char*, std::string> rows[] = {{"truncated", text.substr(0, text.size() / 2)},
                                                      {"empty", ""},
                                                      {"binary", std::string("\x7f"
                                                                             "ELF\0\1\2\xff",
                                                                             8)},
                                                      {"foreign", "{\"plans\": [1, 2, 3]}"}};
  for (const auto& [name, content] : rows) {
    SCOPED_TRACE(name);
    const TemporaryDirectory broken;  // a warning comes once for each file
    std::ofstream(broken.path() / file.filename(), std::ios::binary) << content;
    options.plan_directory = broken.path();
    LogCapture capture;
    Engine engine(caller.weights(), options);
    caller.expect_right_and_repeatable(engine);
    EXPECT_EQ(engine.stats().problems_planned, 1);
    EXPECT_EQ(capture.warnings.size(), 1u) << ::testing::PrintToString(capture.warnings);
  }
}

}  // namespace
}  // namespace gnomon::test
