// Tensors in files: NumPy's .npy and .safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/element_type.hpp"
#include "core/tensor.hpp"

namespace gnomon::cli {

struct LoadedTensor {
  std::string what;  // "x.npy" or "tensor `input` of x.safetensors", for messages
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;   // row-major, contiguous
  std::span<const std::byte> bytes;  // aligned for their type
  std::shared_ptr<const void> storage;
};

// `name` picks a tensor of a .safetensors file; empty: its only one. The format is told by the file's ending.
LoadedTensor load_tensor(const std::filesystem::path& path, const std::string& name);
void save_tensor(const std::filesystem::path& path, const std::string& name, const ConstTensorView& tensor);

ConstTensorView as_input(const LoadedTensor& tensor);  // caller error unless [B, S, d_model] of f32, f16 or bf16
MaskView as_mask(const LoadedTensor& tensor);          // caller error unless [B, S] of bool or uint8

}  // namespace gnomon::cli
