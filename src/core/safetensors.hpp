// The safetensors format: 8 bytes of little-endian header length, a JSON header, then the tensors' bytes without gaps.
// A file is hostile until it has been checked: every number in it is checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/element_type.hpp"
#include "core/named_tensor.hpp"

namespace gnomon {

struct StoredTensor {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // perhaps unaligned; exactly the shape's elements
};

using Metadata = std::map<std::string, std::string>;

class Safetensors {
 public:
  static Safetensors open(const std::filesystem::path& path);
  static Safetensors parse(std::span<const std::byte> file, std::string source);  // the caller keeps the bytes

  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the order of their bytes
  const Metadata& metadata() const { return metadata_; }
  const StoredTensor& at(std::string_view name) const;  // caller error that lists what there is

  // Caller error for a tensor of integers, booleans or 8-bit floats.
  NamedTensor as_float(const StoredTensor& tensor) const;

  const std::string& source() const { return source_; }
  std::shared_ptr<const void> storage() const { return storage_; }  // keeps the tensors' bytes valid

 private:
  std::string source_;
  std::vector<StoredTensor> tensors_;
  Metadata metadata_;
  std::shared_ptr<const void> storage_;
};

// Tensors are stored largest element type first, so that all of them are aligned. Written aside and renamed.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const Metadata& metadata);

}  // namespace gnomon
