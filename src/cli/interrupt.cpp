#include "cli/interrupt.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string_view>

namespace gnomon::cli {
namespace {

std::atomic<Engine*> planning_engine{nullptr};
static_assert(std::atomic<Engine*>::is_always_lock_free);

void on_interrupt(int signal) {
  const int error = errno;
  Engine* const engine = planning_engine;
  if (engine != nullptr && engine->cancel()) {
    constexpr std::string_view told =
        "\ngnomon: the planning is cut short, its best plan so far is used; Ctrl-C again ends gnomon\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, told.data(), told.size());
  } else {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // ends the process when this handler returns, with the status of a process so ended
  }
  errno = error;
}

}  // namespace

InterruptiblePlanning::InterruptiblePlanning(Engine& engine) {
  planning_engine = &engine;
  sigaction(SIGINT, nullptr, &before_);
  if (before_.sa_handler == SIG_IGN) return;  // as nohup and shells in the background ask
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

InterruptiblePlanning::~InterruptiblePlanning() {
  sigaction(SIGINT, &before_, nullptr);
  planning_engine = nullptr;
}

}  // namespace gnomon::cli
