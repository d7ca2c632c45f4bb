// The CPU as a backend of the planner.
#pragma once

#include <memory>

#include "core/weights.hpp"
#include "plan/backend.hpp"

namespace gnomon::cpu {

std::unique_ptr<Backend> make_cpu_backend(std::shared_ptr<const Weights> weights, const Constraints& constraints);

}  // namespace gnomon::cpu
