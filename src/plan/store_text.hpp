// The text of a store file; parse_store_file (plan_store.hpp) reads it back.
#pragma once

#include <map>
#include <string>

#include "plan/plan_store.hpp"

namespace gnomon {

// One line per candidate, so that a plan reads as a table and a diff shows what changed.
std::string store_text(const Environment& environment, const std::map<std::string, PlanRecord>& records);

}  // namespace gnomon
