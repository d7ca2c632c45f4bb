// Element types of tensors that cross Gnomon's border (inputs, outputs, weights).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gnomon {

enum class DType : std::uint8_t { f32, f16, bf16, f64 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 8;
    case DType::f32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return "f64";
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
  }
  return "?";
}

}  // namespace gnomon
