// Many processes on one store: sharing, dying in mid-write, a full disk.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>

#include "core/log.hpp"
#include "plan/plan_store.hpp"
#include "plan/records.hpp"
#include "support/temporary_directory.hpp"

namespace gnomon {
namespace {

namespace fs = std::filesystem;
using fake::record_of;

const Environment kEnvironment{"Some CPU", {{"isa", "avx2"}}, {}};

pid_t in_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());  // no test machinery in the child
  return child;
}

int exit_status(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(PlanStoreProcesses, EightProcessesLoseNothing) {
  const test::TemporaryDirectory folder;
  std::vector<pid_t> children;
  for (int process = 0; process < 8; ++process) {
    children.push_back(in_child([&, process] {
      PlanStore store(folder.path(), kEnvironment);
      store.put(record_of("b7 s7"));  // the same cold shape for all
      for (int i = 1; i <= 4; ++i) store.put(record_of(fmt::format("b{} s1", 100 * process + i)));
      return store.find(parse_problem("b7 s7"), {}) ? 0 : 1;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
  EXPECT_EQ(PlanStore(folder.path(), kEnvironment).list().size(), 8u * 4 + 1);
}

TEST(PlanStoreProcesses, KilledInMidWriteLeavesAWholeFile) {
  const test::TemporaryDirectory folder;
  PlanStore store(folder.path(), kEnvironment);
  for (int i = 1; i <= 20; ++i) store.put(record_of(fmt::format("b{} s1", i)));
  for (int round = 0; round < 8; ++round) {
    const pid_t child = in_child([&] {
      PlanStore own(folder.path(), kEnvironment);
      for (int i = 0;; ++i) own.put(record_of(fmt::format("b{} s1", 1000 + i % 50)));
      return 0;
    });
    usleep(static_cast<useconds_t>(3000 + 2500 * round));
    kill(child, SIGKILL);
    exit_status(child);
    store.put(record_of(fmt::format("b1 s{}", round + 2)));  // the dead one's lock is free
    const std::vector<PlanRecord> records = PlanStore(folder.path(), kEnvironment).list();
    EXPECT_GE(records.size(), 21u + static_cast<unsigned>(round));
  }
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    EXPECT_NE(entry.path().extension(), ".broken") << entry.path();
  }
}

TEST(PlanStoreProcesses, AFullDiskMeansMemoryOneWarningAndTheOldFile) {
  const test::TemporaryDirectory folder;
  PlanStore store(folder.path(), kEnvironment);
  store.put(record_of("b1 s1"));
  const auto size = fs::file_size(store.file());
  const pid_t child = in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{size + 100, size + 100};
    setrlimit(RLIMIT_FSIZE, &limit);
    int warnings = 0;
    log::set_sink([&](log::Level level, std::string_view) { warnings += level == log::Level::warn; });
    PlanStore full(folder.path(), kEnvironment);
    full.put(record_of("b2 s1"));
    full.put(record_of("b3 s1"));
    const bool kept = full.find(parse_problem("b2 s1"), {}) && full.find(parse_problem("b1 s1"), {});
    return kept && warnings == 1 ? 0 : 1;
  });
  EXPECT_EQ(exit_status(child), 0);
  PlanStore later(folder.path(), kEnvironment);
  EXPECT_EQ(later.list().size(), 1u);
  EXPECT_EQ(fs::file_size(store.file()), size);
}

}  // namespace
}  // namespace gnomon
