// The bench that a planning works on: the whole call, or the part of it that stands for the whole.
#pragma once

#include <memory>
#include <string>

#include "plan/backend.hpp"

namespace gnomon {

struct Bench {
  Problem problem;
  std::unique_ptr<Workbench> workbench;
};

// Starts with `part` and takes ever smaller parts while memory fails. Environment error when the smallest does not fit.
Bench open_bench(Backend& backend, const Call& call, Problem part);

std::string describe_failure(const Verdict& verdict, const Contract& contract);

}  // namespace gnomon
