// Any text is a problem or a caller's error; a problem that is read is printed and read back the same.
#include <cstdlib>
#include <string_view>

#include "core/error.hpp"
#include "core/problem.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const gnomon::Problem problem = gnomon::parse_problem(text);
    if (gnomon::parse_problem(gnomon::to_string(problem)) != problem) std::abort();
    if (gnomon::parse_stack_config(gnomon::to_string(problem.config)) != problem.config) std::abort();
    if (!(gnomon::flops(problem) >= 0)) std::abort();
  } catch (const gnomon::Error& error) {
    if (error.kind() != gnomon::ErrorKind::caller) std::abort();
  }
  return 0;
}
