#include "cli/tensor_file.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "cli/buffer.hpp"
#include "core/error.hpp"
#include "core/npy.hpp"
#include "core/safetensors.hpp"
#include "core/text_list.hpp"

namespace gnomon::cli {
namespace {

LoadedTensor load_safetensors(const std::filesystem::path& path, const std::string& name) {
  const Safetensors file = Safetensors::open(path);
  if (name.empty() && file.tensors().size() != 1) {
    throw_caller("{} holds {} tensors; say which one with --input-name or --mask-name", path.string(),
                 file.tensors().size());
  }
  const StoredTensor& stored = name.empty() ? file.tensors().front() : file.at(name);
  return {fmt::format("tensor `{}` of {}", stored.name, path.string()), stored.type, stored.shape, stored.bytes,
          file.storage()};
}

LoadedTensor load_npy(const std::filesystem::path& path) {
  const NpyArray array = read_npy(path);
  return {path.string(), array.type, array.shape, array.bytes, array.storage};
}

// Both formats allow data at any address; kernels read elements where they lie.
void align(LoadedTensor& tensor) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.bytes.data());
  if (address % info_of(tensor.type).size == 0) return;
  auto copy = std::make_shared<Buffer>(tensor.bytes.size());
  std::memcpy(copy->data(), tensor.bytes.data(), tensor.bytes.size());
  tensor.bytes = {copy->data(), copy->size()};
  tensor.storage = copy;
}

[[noreturn]] void unknown_format(const std::filesystem::path& path) {
  throw_caller("{}: the ending must be .npy or .safetensors, got `{}`", path.string(), path.extension().string());
}

template <std::size_t N>
std::array<std::int64_t, N> exactly(const std::vector<std::int64_t>& values) {
  std::array<std::int64_t, N> result;
  std::copy_n(values.begin(), N, result.begin());
  return result;
}

}  // namespace

LoadedTensor load_tensor(const std::filesystem::path& path, const std::string& name) {
  const std::filesystem::path ending = path.extension();
  if (ending != ".npy" && ending != ".safetensors") unknown_format(path);
  LoadedTensor tensor = ending == ".npy" ? load_npy(path) : load_safetensors(path, name);
  align(tensor);
  return tensor;
}

void save_tensor(const std::filesystem::path& path, const std::string& name, const ConstTensorView& tensor) {
  if (path.extension() == ".npy") return write_npy(path, element_type_of(tensor.dtype), tensor.shape, tensor.data);
  if (path.extension() != ".safetensors") unknown_format(path);
  const NamedTensor named{name, tensor.dtype, {tensor.shape.begin(), tensor.shape.end()}, tensor.data};
  write_safetensors(path, std::span(&named, 1), {});
}

ConstTensorView as_input(const LoadedTensor& tensor) {
  if (tensor.shape.size() != 3) {
    throw_caller("{} has shape {}; expected [B, S, d_model]", tensor.what, shape_text(tensor.shape));
  }
  const std::optional<DType> dtype = info_of(tensor.type).dtype;
  if (!dtype) {
    throw_caller("{} has elements of type {}; expected F32, F16 or BF16", tensor.what,
                 info_of(tensor.type).safetensors);
  }
  return ConstTensorView::contiguous(tensor.bytes.data(), *dtype, exactly<3>(tensor.shape));
}

MaskView as_mask(const LoadedTensor& tensor) {
  if (tensor.type != ElementType::boolean && tensor.type != ElementType::u8) {
    throw_caller("{} has elements of type {}; a mask is bool or uint8, nonzero = valid token", tensor.what,
                 info_of(tensor.type).safetensors);
  }
  if (tensor.shape.size() != 2)
    throw_caller("{} has shape {}; a mask is [B, S]", tensor.what, shape_text(tensor.shape));
  return {reinterpret_cast<const std::uint8_t*>(tensor.bytes.data()), exactly<2>(tensor.shape), {tensor.shape[1], 1}};
}

}  // namespace gnomon::cli
