#include "core/npy.hpp"

#include <cstring>

#include "core/expect_error.hpp"
#include "core/files.hpp"

namespace gnomon {
namespace {

std::string file_of(int version, std::string_view header, std::string_view data) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (std::size_t i = 0; i < (version == 1 ? 2u : 4u); ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file.append(header).append(data);
}

NpyArray parse(std::string_view file) { return parse_npy(std::as_bytes(std::span(file.data(), file.size())), "x.npy"); }

TEST(Npy, ReadsEveryVersionAndType) {
  const struct {
    const char* descr;
    ElementType type;
    std::size_t size;
  } rows[] = {{"<f4", ElementType::f32, 4},
              {"<f2", ElementType::f16, 2},
              {"<f8", ElementType::f64, 8},
              {"|b1", ElementType::boolean, 1},
              {"|u1", ElementType::u8, 1}};
  for (const auto& row : rows) {
    for (const int version : {1, 2, 3}) {
      const std::string file =
          file_of(version, fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (2, 3), }}   \n", row.descr),
                  std::string(6 * row.size, 'x'));
      const NpyArray array = parse(file);
      EXPECT_EQ(array.type, row.type);
      EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 3}));
      EXPECT_EQ(array.bytes.size(), 6 * row.size);
    }
  }
  EXPECT_EQ(parse(file_of(1, R"({"shape":(),"fortran_order":False,"descr":"<f4"})", "1234")).shape.size(), 0u);
  EXPECT_EQ(parse(file_of(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (0,)}", "")).bytes.size(), 0u);
}

TEST(Npy, BrokenFilesAreRefusedWithValues) {
  const auto header = [](const char* descr, const char* order, const char* shape) {
    return fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}", descr, order, shape);
  };
  const auto environment = ErrorKind::environment, caller = ErrorKind::caller;
  const struct {
    std::string file;
    ErrorKind kind;
    std::string says;
  } rows[] = {
      {"", environment, "not a .npy file"},
      {"PK\3\4.........", environment, "not a .npy file"},
      {"\x93NUMPY", environment, "not a .npy file"},
      {file_of(4, "{}", ""), environment, ".npy version 4"},
      {std::string("\x93NUMPY\x01\x00\x01", 9), environment, "truncated in the header's length"},
      {file_of(1, "{}", "").substr(0, 11), environment, "a header of 2 bytes is announced, 1 follow"},
      {file_of(1, "{}", ""), environment, "lacks descr"},
      {file_of(1, "{'descr", ""), environment, "a string without an end"},
      {file_of(1, "{'shape': (3,", ""), environment, "a size that is no integer"},
      {file_of(1, "{'what': 1}", ""), environment, "an unknown key"},
      {file_of(1, "{} {}", ""), environment, "text after the dictionary"},
      {file_of(1, header("'<f4'", "0", "(1,)"), "1234"), environment, "neither True nor False"},
      {file_of(1, header("'<f4'", "False", "(-1,)"), "1234"), environment, "a size that is no integer"},
      {file_of(1, header("'<f4'", "False", "(99999999999999999999,)"), ""), environment, "a size that is no integer"},
      {file_of(1, header("'<f4'", "False", "(4611686018427387904, 4)"), ""), environment, "overflows"},
      {file_of(1, header("'<f4'", "False", "(2,)"), "1234"), environment, "takes 8 bytes, the file holds 4"},
      {file_of(1, header("'<f4'", "False", "(1,)"), "12345"), environment, "takes 4 bytes, the file holds 5"},
      {file_of(1, header("'<f4'", "True", "(1,)"), "1234"), caller, "numpy.ascontiguousarray"},
      {file_of(1, header("'>f4'", "False", "(1,)"), "1234"), caller,
       "element type '>f4'; read are |b1, |u1, <f2, <f4, <f8"},
      {file_of(1, header("[('a', '<f4')]", "False", "(1,)"), "1234"), caller, "a structured array"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.file);
    expect_error(row.kind, row.says, [&] { parse(row.file); });
  }
}

TEST(Npy, WhatIsWrittenIsReadBack) {
  const test::TemporaryDirectory folder;
  const auto path = folder.path() / "x.npy";
  const float values[] = {1, 2, 3, 4, 5, 6};
  for (const auto& shape : {std::vector<std::int64_t>{6}, {2, 3}, {1, 2, 3}, {2, 0}, {}}) {
    write_npy(path, ElementType::f32, shape, values);
    const NpyArray back = read_npy(path);
    EXPECT_EQ(back.type, ElementType::f32);
    EXPECT_EQ(back.shape, shape);
    EXPECT_EQ(std::memcmp(back.bytes.data(), values, back.bytes.size()), 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(back.bytes.data()) % 64, 0u);
  }
  const std::int64_t one[] = {1};
  expect_error(ErrorKind::caller, "NumPy has no BF16", [&] { write_npy(path, ElementType::bf16, one, values); });
}

}  // namespace
}  // namespace gnomon
