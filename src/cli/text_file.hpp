// Whole texts from and to where an argument says: a file, or "-" for stdin and stdout.
#pragma once

#include <string>

namespace gnomon::cli {

std::string read_text(const std::string& source);  // environment error with the system's reason
void write_text(const std::string& target, const std::string& text);

}  // namespace gnomon::cli
