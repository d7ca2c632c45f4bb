#include "core/npy.hpp"

#include <charconv>
#include <optional>
#include <string_view>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/text_list.hpp"

namespace gnomon {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;

// The header is a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }. Read are exactly the
// literals that NumPy writes there: strings, True, False, tuples of integers.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  struct Header {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::int64_t>> shape;
  };

  Header read() {
    Header header;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        header.descr = descr();
      } else if (key == "fortran_order") {
        header.fortran_order = boolean();
      } else if (key == "shape") {
        header.shape = tuple();
      } else {
        fail("an unknown key");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (at_ != text_.size()) fail("text after the dictionary");
    return header;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    return ++at_, true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("no '{}'", c));
  }
  std::string string() {
    const char quote = accept('"') ? '"' : '\'';
    if (quote == '\'') expect('\'');
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail("a string without an end");
    std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return value;
  }
  std::string descr() {
    if (accept('[')) throw_caller("{}: a structured array; expected one of floats, booleans or bytes", source_);
    return string();
  }
  bool boolean() {
    skip_blanks();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (text_.substr(at_).starts_with(word)) return at_ += word.size(), value;
    }
    fail("neither True nor False");
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> values;
    expect('(');
    while (!accept(')')) {
      skip_blanks();
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (error != std::errc() || value < 0) fail("a size that is no integer of 63 bits");
      at_ = static_cast<std::size_t>(end - text_.data());
      values.push_back(value);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw_environment("{}: the .npy header has {} at byte {}", source_, what, at_);
  }

  std::string_view text_;
  const std::string& source_;
  std::size_t at_ = 0;
};

ElementType type_of(const std::string& descr, const std::string& source) {
  std::string known;
  for (const ElementTypeInfo& info : kElementTypes) {
    if (info.npy.empty()) continue;
    if (info.npy == descr) return info.type;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", info.npy);
  }
  throw_caller("{}: element type '{}'; read are {} (convert with array.astype)", source, descr, known);
}

// Where the header's text lies; the data follow it.
std::string_view header_text(std::span<const std::byte> file, const std::string& source) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  constexpr std::size_t kVersionAt = kMagic.size(), kLengthAt = kVersionAt + 2;
  if (!text.starts_with(kMagic) || text.size() < kLengthAt) throw_environment("{}: not a .npy file", source);
  const int version = static_cast<unsigned char>(text[kVersionAt]);
  if (version < 1 || version > 3) throw_environment("{}: .npy version {}, read are 1, 2 and 3", source, version);
  const std::size_t width = version == 1 ? 2 : 4;
  if (text.size() < kLengthAt + width) throw_environment("{}: truncated in the header's length", source);
  std::size_t length = 0;
  for (std::size_t i = width; i-- > 0;) length = length << 8 | static_cast<unsigned char>(text[kLengthAt + i]);
  const std::string_view rest = text.substr(kLengthAt + width);
  if (length > rest.size()) {
    throw_environment("{}: truncated: a header of {} bytes is announced, {} follow", source, length, rest.size());
  }
  return rest.substr(0, length);
}

}  // namespace

NpyArray parse_npy(std::span<const std::byte> file, const std::string& source) {
  const std::string_view text = header_text(file, source);
  const HeaderReader::Header header = HeaderReader(text, source).read();
  if (!header.descr || !header.fortran_order || !header.shape) {
    throw_environment("{}: the .npy header lacks descr, fortran_order or shape", source);
  }
  NpyArray array{.type = type_of(*header.descr, source), .shape = *header.shape};
  if (*header.fortran_order) {
    throw_caller("{}: the array is in Fortran order; save numpy.ascontiguousarray(array) instead", source);
  }
  auto bytes = static_cast<std::int64_t>(info_of(array.type).size);
  for (const std::int64_t size : array.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      throw_environment("{}: the shape {} overflows 63 bits of bytes", source, shape_text(array.shape));
    }
  }
  array.bytes = file.last(static_cast<std::size_t>(file.data() + file.size() -
                                                   reinterpret_cast<const std::byte*>(text.data() + text.size())));
  if (array.bytes.size() != static_cast<std::size_t>(bytes)) {
    throw_environment("{}: shape {} of '{}' takes {} bytes, the file holds {}", source, shape_text(array.shape),
                      *header.descr, bytes, array.bytes.size());
  }
  return array;
}

NpyArray read_npy(const std::filesystem::path& path) {
  MappedFile file = map_file(path);
  NpyArray array = parse_npy(file.bytes, path.string());
  array.storage = std::move(file.mapping);
  return array;
}

void write_npy(const std::filesystem::path& path, ElementType type, std::span<const std::int64_t> shape,
               const void* data) {
  const ElementTypeInfo& info = info_of(type);
  if (info.npy.empty()) {
    throw_caller("{}: NumPy has no {}; write .safetensors, or convert to f32", path.string(), info.safetensors);
  }
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", info.npy,
                                   fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr std::size_t kBefore = kMagic.size() + 4;
  header.resize((kBefore + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment - kBefore - 1, ' ');
  header += '\n';
  std::size_t bytes = info.size;
  for (const std::int64_t size : shape) bytes *= static_cast<std::size_t>(size);
  FileWriter file(path);
  file.write(kMagic.data(), kMagic.size());
  const char version_and_length[] = {1, 0, static_cast<char>(header.size() & 0xff),
                                     static_cast<char>(header.size() >> 8)};
  file.write(version_and_length, sizeof(version_and_length));
  file.write(header.data(), header.size());
  file.write(data, bytes);
  file.commit();
}

}  // namespace gnomon
