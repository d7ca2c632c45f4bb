// Names of template instances of the device code: KernelSource expressions from host values.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "core/dtype.hpp"
#include "cuda/compiler.hpp"

namespace gnomon::cuda {

// The device code's name of an element type; of no tensor at all: none.
inline std::string type_name(std::optional<DType> dtype) {
  if (!dtype) return "gnomon::kernels::none";
  switch (*dtype) {
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::f16:
      return "gnomon::kernels::f16";
    case DType::bf16:
      return "gnomon::kernels::bf16";
  }
  return "?";
}

inline std::string template_argument(bool value) { return value ? "true" : "false"; }
inline std::string template_argument(int value) { return std::to_string(value); }
inline std::string template_argument(DType value) { return type_name(value); }
inline std::string template_argument(std::optional<DType> value) { return type_name(value); }
inline std::string template_argument(const char* type) { return std::string("gnomon::kernels::") + type; }

template <typename... Args>
KernelSource instantiate(std::string_view file, std::string_view kernel, Args... args) {
  std::string list;
  ((list += (list.empty() ? "" : ", ") + template_argument(args)), ...);
  return {.file = std::string(file), .expression = fmt::format("gnomon::kernels::{}<{}>", kernel, list), .defines = {}};
}

}  // namespace gnomon::cuda
