// NumPy's .npy, versions 1.0 to 3.0: magic, version, header length, a Python dict, padding, the elements.
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "cli/tensor_file.hpp"
#include "core/error.hpp"

namespace gnomon::cli {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

struct Header {
  std::string_view dict;
  std::size_t data_offset = 0;
};

Header split(std::span<const std::byte> file, const std::string& source) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(magic) || file.size() < 10) throw_caller("{} is no .npy file: it does not begin with \\x93NUMPY", source);
  const auto byte = [&](std::size_t at) { return static_cast<std::size_t>(static_cast<unsigned char>(text[at])); };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3) throw_caller("{} has .npy version {}; 1 to 3 are known", source, version);
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::size_t start = 8 + length_bytes;
  std::size_t length = 0;
  if (file.size() < start) throw_caller("{} is truncated: {} bytes, its header begins at {}", source, file.size(), start);
  for (std::size_t i = 0; i < length_bytes; ++i) length |= byte(8 + i) << (8 * i);
  if (length > file.size() - start) {
    throw_caller("{} is truncated: its header needs {} bytes, {} are there", source, length, file.size() - start);
  }
  return {text.substr(start, length), start + length};
}

// What follows "'key':" in the dict.
std::string_view value_of(std::string_view dict, std::string_view key, const std::string& source) {
  const std::string quoted = fmt::format("'{}':", key);
  const std::size_t at = dict.find(quoted);
  if (at == std::string_view::npos) throw_caller("{}: the .npy header lacks {}", source, quoted);
  std::string_view rest = dict.substr(at + quoted.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

ElementType element_type(std::string_view descr, const std::string& source) {
  for (const ElementTypeInfo& info : kElementTypes) {
    if (!info.npy.empty() && descr.starts_with(fmt::format("'{}'", info.npy))) return info.type;
  }
  throw_caller("{} has elements of type {}; Gnomon reads '<f4', '<f2' and, as a mask, '|b1' and '|u1'", source,
               descr.substr(0, descr.find(',')));
}

std::vector<std::int64_t> shape_of(std::string_view tuple, const std::string& source) {
  const std::size_t close = tuple.find(')');
  if (!tuple.starts_with('(') || close == std::string_view::npos) throw_caller("{}: the .npy header's shape is no tuple", source);
  std::vector<std::int64_t> shape;
  for (const char *at = tuple.data() + 1, *end = tuple.data() + close; at < end;) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    std::int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 0) throw_caller("{}: the .npy header's shape {} is no tuple of sizes", source, tuple.substr(0, close + 1));
    shape.push_back(size);
    at = next;
  }
  return shape;
}

std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape, bool fortran) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t axis = fortran ? i : shape.size() - 1 - i;
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

std::size_t bytes_needed(const std::vector<std::int64_t>& shape, std::size_t element, const std::string& source) {
  std::size_t bytes = element;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes)) {
      throw_caller("{}: the .npy header's shape ({}) is too large", source, fmt::join(shape, ", "));
    }
  }
  return bytes;
}

}  // namespace

LoadedTensor parse_npy(std::span<const std::byte> file, std::string source) {
  const Header header = split(file, source);
  LoadedTensor tensor;
  tensor.type = element_type(value_of(header.dict, "descr", source), source);
  tensor.shape = shape_of(value_of(header.dict, "shape", source), source);
  tensor.strides = strides_of(tensor.shape, value_of(header.dict, "fortran_order", source).starts_with("True"));
  const std::size_t needed = bytes_needed(tensor.shape, info_of(tensor.type).size, source);
  const std::size_t there = file.size() - header.data_offset;
  if (needed != there) {
    throw_caller("{}: shape ({}) needs {} bytes of elements, {} are there", source, fmt::join(tensor.shape, ", "), needed, there);
  }
  tensor.bytes = file.subspan(header.data_offset);
  tensor.what = std::move(source);
  return tensor;
}

}  // namespace gnomon::cli
