// What the first call with a problem costs, by what earlier processes have kept.
#pragma once

#include <string>

#include "core/weights.hpp"
#include "engine/engine.hpp"
#include "plan/statistics.hpp"

namespace gnomon::cli {

struct FirstCall {
  double engine_seconds = 0;    // to make the engine; the process's first one makes the device's context too
  double seconds = 0;           // of the call, until its answer is there
  double planning_seconds = 0;  // of these; 0: the plan was kept
  bool cut_short = false;       // the planning's budget ended first
  std::string plan;
};

struct FirstCalls {
  FirstCall nothing_kept, kernels_kept, plans_kept;
  Quartiles later;  // calls of the same engine, one at a time, until the answer is there
};

// Each with an engine of its own, over folders of its own.
FirstCalls measure_first_calls(const Problem& problem, const Weights& weights, EngineOptions options);

}  // namespace gnomon::cli
