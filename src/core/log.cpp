#include "core/log.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace gnomon::log {
namespace {

using Sink = std::function<void(Level, std::string_view)>;

constexpr std::pair<std::string_view, Level> kLevels[] = {
    {"error", Level::error}, {"warn", Level::warn}, {"info", Level::info}, {"debug", Level::debug}};

void to_stderr(Level level, std::string_view message) {
  // One write per line, so that lines of several processes do not mix.
  const std::string line = fmt::format("gnomon: {}: {}\n", kLevels[static_cast<std::size_t>(level)].first, message);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Level level_from_environment() {
  const char* wanted = std::getenv("GNOMON_LOG");
  if (!wanted || !*wanted) return Level::warn;
  for (const auto& [name, level] : kLevels) {
    if (name == wanted) return level;
  }
  to_stderr(Level::warn, fmt::format("GNOMON_LOG is '{}', allowed: error, warn, info, debug; warn is used", wanted));
  return Level::warn;
}

struct State {
  std::mutex mutex;
  std::shared_ptr<const Sink> sink;
  std::set<std::string, std::less<>> warned;
};

State& state() {
  static State& immortal = *new State;  // threads may still log while the process ends
  return immortal;
}

}  // namespace

bool enabled(Level level) {
  static const Level limit = level_from_environment();
  return level <= limit;
}

void write(Level level, std::string_view message) {
  if (!enabled(level)) return;
  std::shared_ptr<const Sink> sink;
  {
    const std::lock_guard lock(state().mutex);
    sink = state().sink;
  }
  if (sink) {
    (*sink)(level, message);  // outside the lock: a sink may log or replace itself
  } else {
    to_stderr(level, message);
  }
}

void warn_once(std::string_view key, std::string_view message) {
  {
    const std::lock_guard lock(state().mutex);
    if (!state().warned.emplace(key).second) return;
  }
  write(Level::warn, message);
}

void set_sink(Sink sink) {
  auto next = sink ? std::make_shared<const Sink>(std::move(sink)) : nullptr;
  const std::lock_guard lock(state().mutex);
  state().sink = std::move(next);
}

}  // namespace gnomon::log
