// Every variable that Gnomon obeys; docs/environment_variables.md says the same at more length.
#pragma once

#include <array>

namespace gnomon::cli {

struct EnvironmentVariable {
  const char *name, *meaning;
};

inline constexpr std::array environment_variables = {
    EnvironmentVariable{"GNOMON_PLAN_DIR", "folder of stored plans"},
    EnvironmentVariable{"GNOMON_LOG", "error, warn (default), info or debug"},
};

}  // namespace gnomon::cli
