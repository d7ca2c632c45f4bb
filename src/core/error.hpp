// The three kinds of failure. Every message carries values: what was expected, what came, what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace gnomon {

enum class ErrorKind {
  caller = 1,       // the arguments were wrong; nothing ran
  environment = 2,  // memory, files, libraries, devices
  internal = 3,     // a bug in Gnomon
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

template <typename... Args>
[[noreturn]] void throw_caller(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorKind::caller, fmt::format(text, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void throw_environment(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorKind::environment, fmt::format(text, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void throw_internal(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorKind::internal, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace gnomon
