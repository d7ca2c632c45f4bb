#include "cli/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace gnomon::cli {
namespace {

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
}

}  // namespace

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::show(const std::string& text) {
  if (!terminal_) return;
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
