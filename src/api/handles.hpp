// The C handles, and the border that no exception crosses.
#pragma once

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "engine/engine.hpp"
#include "gnomon/gnomon.h"

struct gnomon_weights {
  gnomon::Weights value;
};

struct gnomon_options {
  gnomon::EngineOptions value;
};

struct gnomon_engine {
  gnomon::Engine value;
};

namespace gnomon::capi {

void clear_error() noexcept;
gnomon_status set_error(gnomon_status status, const char* text) noexcept;

template <typename Body>
gnomon_status guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    clear_error();
    return GNOMON_OK;
  } catch (const Error& error) {
    return set_error(static_cast<gnomon_status>(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return set_error(GNOMON_ENVIRONMENT_ERROR, "out of memory; free some, or set the option memory_limit");
  } catch (const std::exception& error) {
    return set_error(GNOMON_INTERNAL_ERROR, error.what());
  } catch (...) {
    return set_error(GNOMON_INTERNAL_ERROR, "an exception of an unknown type reached the C interface");
  }
}

template <typename Pointer>
Pointer require(Pointer pointer, const char* argument) {
  if (pointer == nullptr) throw_caller("argument `{}` is NULL; it must point to a value", argument);
  return pointer;
}

DType dtype_of(const gnomon_dtype& dtype, const char* argument);
char* copy_text(std::string_view text);

}  // namespace gnomon::capi
