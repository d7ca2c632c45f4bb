// From the tensor names of other models to the reference's state_dict. A new model is a new table of rows.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gnomon {

struct NameMap {
  std::string_view table;                             // "reference", "bert"
  std::vector<std::optional<std::string>> canonical;  // for every name given; empty: the table says to ignore it
};

// Takes the table that knows most of the names. Caller errors, with the names: no table knows any, the table does not
// know some, two names mean the same tensor.
NameMap map_names(std::span<const std::string> names);

}  // namespace gnomon
