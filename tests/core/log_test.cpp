#include "core/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace gnomon {
namespace {

class Log : public testing::Test {
 protected:
  ~Log() override { log::set_sink({}); }
  std::vector<std::string> lines;
  void capture() {
    log::set_sink([this](log::Level, std::string_view message) { lines.emplace_back(message); });
  }
};

TEST_F(Log, ASinkGetsWhatTheLevelLetsThrough) {
  capture();
  log::write(log::Level::error, "e");
  log::write(log::Level::warn, "w");
  log::write(log::Level::debug, "d");
  std::vector<std::string> expected = {"e"};
  if (log::enabled(log::Level::warn)) expected.push_back("w");
  if (log::enabled(log::Level::debug)) expected.push_back("d");
  EXPECT_EQ(lines, expected);
}

TEST_F(Log, OneWarningPerKey) {
  capture();
  log::warn_once("log_test a", "first");
  log::warn_once("log_test a", "second");
  log::warn_once("log_test b", "third");
  EXPECT_THAT(lines, testing::ElementsAre("first", "third"));
}

TEST_F(Log, WithoutASinkLinesGoToStderr) {
  testing::internal::CaptureStderr();
  log::write(log::Level::warn, "one line");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "gnomon: warn: one line\n");
}

TEST_F(Log, ASinkMayReplaceItself) {
  log::set_sink([this](log::Level, std::string_view) { capture(); });
  log::write(log::Level::error, "lost");
  log::write(log::Level::error, "kept");
  EXPECT_THAT(lines, testing::ElementsAre("kept"));
}

TEST_F(Log, ManyThreadsWarnOnce) {
  std::atomic<int> warnings = 0;
  log::set_sink([&](log::Level, std::string_view) { ++warnings; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      for (int k = 0; k < 100; ++k) log::warn_once("log_test threads", "x");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(warnings, 1);
}

}  // namespace
}  // namespace gnomon
