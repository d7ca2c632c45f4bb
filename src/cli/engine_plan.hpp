// The engine as a plan, so that one instrument measures and judges the engine, its plan and the reference path alike.
#pragma once

#include "engine/engine.hpp"

namespace gnomon::cli {

class EnginePlan : public Plan {
 public:
  explicit EnginePlan(Engine& engine) : engine_(engine) {}
  void run(const Call& call) override { engine_.forward(call); }
  std::int64_t scratch_bytes() const override { return engine_.stats().scratch_bytes; }

 private:
  Engine& engine_;
};

}  // namespace gnomon::cli
