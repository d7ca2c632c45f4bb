// NumPy's .npy files: C order, little-endian floats, booleans and bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/element_type.hpp"

namespace gnomon {

struct NpyArray {
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte>
      bytes;  // exactly the shape's elements; aligned to 16 as NumPy writes them, perhaps not otherwise
  std::shared_ptr<const void> storage;  // keeps `bytes` valid; empty for parse_npy
};

NpyArray read_npy(const std::filesystem::path& path);
NpyArray parse_npy(std::span<const std::byte> file, const std::string& source);  // the caller keeps the bytes
void write_npy(const std::filesystem::path& path, ElementType type, std::span<const std::int64_t> shape,
               const void* data);

}  // namespace gnomon
