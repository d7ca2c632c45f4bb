// The engine as a plan, so that one instrument measures and judges the engine, its plan and the reference path alike.
#pragma once

#include <memory>
#include <string>

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

// For questions about the device alone: any weights do, packed by nobody.
inline std::unique_ptr<Backend> backend_without_weights(const std::string& device, const Constraints& constraints) {
  const StackConfig smallest{.layers = 1, .d_model = 1, .n_heads = 1, .d_ff = 1};
  return make_backend(device, std::make_shared<const Weights>(Weights::random(smallest, 0)), constraints);
}

}  // namespace gnomon::cli
