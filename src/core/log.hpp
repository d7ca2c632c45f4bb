// What Gnomon says on its own account goes through here: to stderr, or to a sink that an embedding program sets.
// GNOMON_LOG = error | warn (default) | info | debug.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace gnomon::log {

enum class Level { error, warn, info, debug };

void write(Level level, std::string_view message);
void warn_once(std::string_view key, std::string_view message);  // one warning per key and process
bool enabled(Level level);
void set_sink(std::function<void(Level, std::string_view)> sink);  // empty function: back to stderr

}  // namespace gnomon::log
