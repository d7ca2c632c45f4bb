#include "api/handles.hpp"

#include <cstdlib>

namespace gnomon::capi {
namespace {

struct LastError {
  std::string text;
  bool lost = false;  // there was no memory to keep the text
};
thread_local LastError last_error;

}  // namespace

void clear_error() noexcept {
  last_error.text.clear();
  last_error.lost = false;
}

gnomon_status set_error(gnomon_status status, const char* text) noexcept {
  try {
    last_error.text = text;
    last_error.lost = false;
  } catch (...) {
    last_error.lost = true;
  }
  return status;
}

// Read as an int: a C caller can put any number into an enum, and loading it as the enum would be undefined here.
DType dtype_of(const gnomon_dtype& dtype, const char* argument) {
  static_assert(sizeof(gnomon_dtype) == sizeof(int));
  int raw = 0;
  std::memcpy(&raw, &dtype, sizeof raw);
  switch (raw) {
    case GNOMON_F32:
      return DType::f32;
    case GNOMON_F16:
      return DType::f16;
    case GNOMON_BF16:
      return DType::bf16;
    case GNOMON_F64:
      return DType::f64;
    default:
      throw_caller("`{}` is {}; a gnomon_dtype is 0 (f32), 1 (f16), 2 (bf16) or 3 (f64)", argument, raw);
  }
}

char* copy_text(std::string_view text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace gnomon::capi

const char* gnomon_version(void) { return GNOMON_VERSION; }

const char* gnomon_last_error(void) {
  const auto& error = gnomon::capi::last_error;
  return error.lost ? "out of memory, even for the text of the error" : error.text.c_str();
}

void gnomon_free(char* text) { std::free(text); }
