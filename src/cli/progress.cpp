#include "cli/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "plan/clock.hpp"

#include <cstdio>
#include <utility>

namespace gnomon::cli {
namespace {

constexpr double between_updates = 0.1;  // seconds: more often is a flicker

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
}

}  // namespace

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::show(const std::string& text) {
  const double now = steady_clock().now();
  if (!terminal_ || now - shown_at_ < between_updates) return;
  shown_at_ = now;
  fmt::print(stderr, "\r\x1b[K{}", text.substr(0, terminal_width()));
  std::fflush(stderr);
  dirty_ = true;
}

void ProgressLine::clear() {
  if (dirty_) fmt::print(stderr, "\r\x1b[K");
  dirty_ = false;
}

std::function<void(const Progress&)> ProgressLine::planner(std::string label) {
  if (!terminal_) return {};
  return [this, label = std::move(label)](const Progress& progress) {
    show(fmt::format("{}: planning {:.1f}/{:.0f} s, {} candidates, {}", label, progress.elapsed, progress.budget,
                     progress.candidates_done, progress.now));
  };
}

}  // namespace gnomon::cli
