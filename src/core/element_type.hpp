// Element types of tensors in files: more than Gnomon computes with, since a file is listed whole.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/dtype.hpp"

namespace gnomon {

enum class ElementType : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  f64,
  i64,
  u64
};

struct ElementTypeInfo {
  ElementType type;
  std::string_view safetensors;  // its name in a safetensors header
  std::string_view npy;          // its descr in a .npy header; empty: NumPy has none, or we do not read it
  std::size_t size;
  std::optional<DType> dtype;  // the float type that Gnomon computes with
};

inline constexpr std::array<ElementTypeInfo, 15> kElementTypes = {{
    {ElementType::boolean, "BOOL", "|b1", 1, {}},
    {ElementType::u8, "U8", "|u1", 1, {}},
    {ElementType::i8, "I8", "", 1, {}},
    {ElementType::f8_e5m2, "F8_E5M2", "", 1, {}},
    {ElementType::f8_e4m3, "F8_E4M3", "", 1, {}},
    {ElementType::i16, "I16", "", 2, {}},
    {ElementType::u16, "U16", "", 2, {}},
    {ElementType::f16, "F16", "<f2", 2, DType::f16},
    {ElementType::bf16, "BF16", "", 2, DType::bf16},
    {ElementType::i32, "I32", "", 4, {}},
    {ElementType::u32, "U32", "", 4, {}},
    {ElementType::f32, "F32", "<f4", 4, DType::f32},
    {ElementType::f64, "F64", "<f8", 8, DType::f64},
    {ElementType::i64, "I64", "", 8, {}},
    {ElementType::u64, "U64", "", 8, {}},
}};

constexpr const ElementTypeInfo& info_of(ElementType type) { return kElementTypes[static_cast<std::size_t>(type)]; }

constexpr ElementType element_type_of(DType dtype) {
  for (const ElementTypeInfo& info : kElementTypes) {
    if (info.dtype == dtype) return info.type;
  }
  return ElementType::f32;
}

}  // namespace gnomon
