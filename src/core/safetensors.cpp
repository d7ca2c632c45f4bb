#include "core/safetensors.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/text_list.hpp"

namespace gnomon {
namespace {

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kHeaderLimit = 100'000'000;  // the format's own
constexpr int kDepthLimit = 3;                       // {"name": {"shape": [1]}}
constexpr std::size_t kDataAlignment = 64;           // of what we write

std::uint64_t little_endian(std::span<const std::byte, kLengthBytes> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return value;
}

std::string_view header_of(std::span<const std::byte> file, const std::string& source) {
  if (file.size() < kLengthBytes) {
    throw_environment("{}: {} bytes are no safetensors file: at least 8 are expected", source, file.size());
  }
  const std::uint64_t length = little_endian(file.first<kLengthBytes>());
  if (length > kHeaderLimit) {
    throw_environment("{}: the header's length is given as {}, the format's limit is {}: not a safetensors file?",
                      source, length, kHeaderLimit);
  }
  if (length > file.size() - kLengthBytes) {
    throw_environment("{}: truncated: a header of {} bytes is announced, {} follow", source, length,
                      file.size() - kLengthBytes);
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (!header.starts_with('{')) throw_environment("{}: the header does not start with '{{'", source);
  return header;
}

// JSON lets a name appear twice and nlohmann keeps the last: two readers could then see two files. Refused while
// reading.
json parse_header(std::string_view header, const std::string& source) {
  std::vector<std::set<std::string>> names(kDepthLimit + 2);
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kDepthLimit) throw_environment("{}: the header nests deeper than {} levels", source, kDepthLimit);
    const auto level = static_cast<std::size_t>(depth);
    if (event == json::parse_event_t::object_start) names[level + 1].clear();
    if (event == json::parse_event_t::key && !names[level].insert(value.get<std::string>()).second) {
      throw_environment("{}: the name '{}' appears twice in the header", source, value.get<std::string>());
    }
    return true;
  };
  try {
    return json::parse(header, watch);
  } catch (const json::exception& error) {
    throw_environment("{}: the header is not valid JSON: {}", source, error.what());
  }
}

std::int64_t non_negative(const json& value, const std::string& where) {
  constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > limit) {
    throw_environment("{}: expected an integer of 0 to {}, got {}", where, limit, value.dump());
  }
  return value.get<std::int64_t>();
}

const json& field(const json& entry, const char* key, const std::string& where) {
  const auto found = entry.find(key);
  if (found == entry.end()) throw_environment("{}: '{}' is missing", where, key);
  return *found;
}

ElementType type_of(const json& value, const std::string& where) {
  for (const ElementTypeInfo& info : kElementTypes) {
    if (value.is_string() && value.get_ref<const std::string&>() == info.safetensors) return info.type;
  }
  throw_environment("{}: unknown dtype {}", where, value.dump());
}

std::vector<std::int64_t> shape_of(const json& value, const std::string& where) {
  if (!value.is_array()) throw_environment("{}: 'shape' is not a list", where);
  std::vector<std::int64_t> shape;
  for (const json& size : value) shape.push_back(non_negative(size, where + " shape"));
  return shape;
}

std::int64_t bytes_of(const std::vector<std::int64_t>& shape, ElementType type, const std::string& where) {
  auto bytes = static_cast<std::int64_t>(info_of(type).size);
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      throw_environment("{}: the shape {} overflows 63 bits of bytes", where, shape_text(shape));
    }
  }
  return bytes;
}

StoredTensor tensor_of(const std::string& name, const json& entry, std::span<const std::byte> data,
                       const std::string& where) {
  if (!entry.is_object()) throw_environment("{}: the entry is not an object", where);
  StoredTensor tensor{.name = name,
                      .type = type_of(field(entry, "dtype", where), where),
                      .shape = shape_of(field(entry, "shape", where), where)};
  const json& offsets = field(entry, "data_offsets", where);
  if (!offsets.is_array() || offsets.size() != 2) throw_environment("{}: 'data_offsets' is not a pair", where);
  const std::int64_t begin = non_negative(offsets[0], where + " data_offsets");
  const std::int64_t end = non_negative(offsets[1], where + " data_offsets");
  if (begin > end || static_cast<std::uint64_t>(end) > data.size()) {
    throw_environment("{}: data_offsets [{}, {}] are outside the {} bytes of data: truncated?", where, begin, end,
                      data.size());
  }
  const std::int64_t expected = bytes_of(tensor.shape, tensor.type, where);
  if (end - begin != expected) {
    throw_environment("{}: shape {} of {} takes {} bytes, data_offsets [{}, {}] give {}", where,
                      shape_text(tensor.shape), info_of(tensor.type).safetensors, expected, begin, end, end - begin);
  }
  tensor.bytes = data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  return tensor;
}

Metadata metadata_of(const json& entry, const std::string& source) {
  if (!entry.is_object()) throw_environment("{}: __metadata__ is not an object", source);
  Metadata metadata;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) throw_environment("{}: __metadata__ '{}' is not a string", source, key);
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Sorted by place, the tensors must tile the data: no byte twice, no byte unused.
void check_tiling(const std::vector<StoredTensor>& tensors, std::span<const std::byte> data,
                  const std::string& source) {
  const std::byte* at = data.data();
  for (const StoredTensor& tensor : tensors) {
    if (tensor.bytes.data() != at) {
      throw_environment("{}: tensor '{}' starts at byte {} of the data, {} was expected: {}", source, tensor.name,
                        tensor.bytes.data() - data.data(), at - data.data(),
                        tensor.bytes.data() < at ? "it overlaps the one before" : "there is a gap");
    }
    at += tensor.bytes.size();
  }
  if (at != data.data() + data.size()) {
    throw_environment("{}: {} bytes of data, the tensors use {}", source, data.size(), at - data.data());
  }
}

}  // namespace

Safetensors Safetensors::open(const std::filesystem::path& path) {
  MappedFile file = map_file(path);
  Safetensors result = parse(file.bytes, path.string());
  result.storage_ = std::move(file.mapping);
  return result;
}

Safetensors Safetensors::parse(std::span<const std::byte> file, std::string source) {
  const std::string_view text = header_of(file, source);
  const std::span<const std::byte> data = file.subspan(kLengthBytes + text.size());
  const json header = parse_header(text, source);
  Safetensors result;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      result.metadata_ = metadata_of(entry, source);
    } else {
      result.tensors_.push_back(tensor_of(name, entry, data, fmt::format("{}: tensor '{}'", source, name)));
    }
  }
  std::sort(result.tensors_.begin(), result.tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  check_tiling(result.tensors_, data, source);
  result.source_ = std::move(source);
  return result;
}

const StoredTensor& Safetensors::at(std::string_view name) const {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : tensors_) {
    if (tensor.name == name) return tensor;
    names.push_back(tensor.name);
  }
  throw_caller("{}: there is no tensor '{}'; there are {}: {}", source_, name, names.size(), some_of(names));
}

NamedTensor Safetensors::as_float(const StoredTensor& tensor) const {
  const std::optional<DType> dtype = info_of(tensor.type).dtype;
  if (!dtype) {
    throw_caller("{}: tensor '{}' is {}; expected F32, F16, BF16 or F64", source_, tensor.name,
                 info_of(tensor.type).safetensors);
  }
  return {tensor.name, *dtype, tensor.shape, tensor.bytes.data()};
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const Metadata& metadata) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](const NamedTensor* a, const NamedTensor* b) { return size_of(a->dtype) > size_of(b->dtype); });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::vector<std::int64_t> sizes;
  std::int64_t at = 0;
  for (const NamedTensor* tensor : order) {
    if (header.contains(tensor->name)) throw_caller("{}: two tensors are named '{}'", path.string(), tensor->name);
    const ElementType type = element_type_of(tensor->dtype);
    sizes.push_back(bytes_of(tensor->shape, type, tensor->name));
    header[tensor->name] = {
        {"dtype", info_of(type).safetensors}, {"shape", tensor->shape}, {"data_offsets", {at, at + sizes.back()}}};
    at += sizes.back();
  }

  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception& error) {
    throw_caller("{}: a name or the metadata is not UTF-8: {}", path.string(), error.what());
  }
  text.resize((text.size() + kLengthBytes + kDataAlignment - 1) / kDataAlignment * kDataAlignment - kLengthBytes, ' ');
  std::string length(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);

  FileWriter file(path);
  file.write(length.data(), length.size());
  file.write(text.data(), text.size());
  for (std::size_t i = 0; i < order.size(); ++i) file.write(order[i]->data, static_cast<std::size_t>(sizes[i]));
  file.commit();
}

}  // namespace gnomon
