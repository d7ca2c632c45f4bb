// The config.json that BERT-type encoders are published with.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/stack_config.hpp"

namespace gnomon {

// Caller error, with the value, for what the stack cannot do (another activation, relative positions, a decoder).
StackConfig parse_bert_config(std::string_view text, const std::string& source);
StackConfig read_bert_config(const std::filesystem::path& path);

}  // namespace gnomon
