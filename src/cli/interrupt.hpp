// Ctrl-C while an engine plans: the first one cuts the planning short, so that its best so far is kept. The next one,
// and any at another time, ends the process as usual.
#pragma once

#include <csignal>

#include "engine/engine.hpp"

namespace gnomon::cli {

class InterruptiblePlanning {  // one at a time
 public:
  explicit InterruptiblePlanning(Engine& engine);
  ~InterruptiblePlanning();
  InterruptiblePlanning(const InterruptiblePlanning&) = delete;
  InterruptiblePlanning& operator=(const InterruptiblePlanning&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace gnomon::cli
