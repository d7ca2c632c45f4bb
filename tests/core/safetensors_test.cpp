#include "core/safetensors.hpp"

#include <array>
#include <cstring>

#include "core/expect_error.hpp"
#include "core/files.hpp"

namespace gnomon {
namespace {

std::string file_of(std::string_view header, std::string_view data) {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file.append(header).append(data);
}

Safetensors parse(std::string_view file) {
  return Safetensors::parse(std::as_bytes(std::span(file.data(), file.size())), "x.safetensors");
}

TEST(Safetensors, ReadsWhatTheFormatSays) {
  const std::string file = file_of(
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
      R"("a":{"dtype":"F16","shape":[2,1],"data_offsets":[3,7]},"none":{"dtype":"F32","shape":[0,5],"data_offsets":[3,3]},)"
      R"("scalar":{"dtype":"F64","shape":[],"data_offsets":[7,15]}}   )",
      "0123456789abcde");
  const Safetensors read = parse(file);
  EXPECT_EQ(read.metadata(), (Metadata{{"k", "v"}}));
  ASSERT_EQ(read.tensors().size(), 4u);
  EXPECT_EQ(read.tensors()[0].name, "b");
  const StoredTensor& a = read.at("a");
  EXPECT_EQ(a.type, ElementType::f16);
  EXPECT_EQ(a.shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(std::memcmp(a.bytes.data(), "3456", 4), 0);
  EXPECT_EQ(read.as_float(a).dtype, DType::f16);
  EXPECT_EQ(read.at("scalar").bytes.size(), 8u);
  expect_error(ErrorKind::caller, "tensor 'b' is U8; expected F32, F16, BF16 or F64",
               [&] { read.as_float(read.at("b")); });
  expect_error(ErrorKind::caller, "no tensor 'c'; there are 4: b, ", [&] { read.at("c"); });
  EXPECT_TRUE(parse(file_of("{}", "")).tensors().empty());
}

TEST(Safetensors, BrokenFilesAreRefusedWithValues) {
  const auto tensor = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"t":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
  };
  const auto two = [](std::string_view first, std::string_view second) {
    return fmt::format(
        R"({{"s":{{"dtype":"U8","shape":[2],"data_offsets":{}}},"t":{{"dtype":"U8","shape":[2],"data_offsets":{}}}}})",
        first, second);
  };
  const struct {
    std::string file, says;
  } rows[] = {
      {"", "0 bytes are no safetensors file"},
      {"1234567", "7 bytes are no safetensors file"},
      {std::string("\x10\0\0\0\0\0\0\0{}", 10), "a header of 16 bytes is announced, 2 follow"},
      {std::string("\x01\xe1\xf5\x05\0\0\0\0", 8), "given as 100000001, the format's limit is 100000000"},
      {std::string(16, '\xff'), "given as 18446744073709551615"},
      {file_of("", ""), "does not start with '{'"},
      {file_of(" {}", ""), "does not start with '{'"},
      {file_of("[]", ""), "does not start with '{'"},
      {file_of("{", ""), "not valid JSON"},
      {file_of("{}x", ""), "not valid JSON"},
      {file_of("{\"\xff\":{}}", ""), "not valid JSON"},
      {file_of(R"({"t":)" + std::string(10000, '[') + std::string(10000, ']') + "}", ""), "nests deeper than 3"},
      {file_of(
           R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
           "1"),
       "the name 'a' appears twice"},
      {file_of(R"({"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}})", ""),
       "the name 'dtype' appears twice"},
      {file_of(R"({"t":3})", ""), "the entry is not an object"},
      {file_of(R"({"t":{"shape":[1],"data_offsets":[0,1]}})", "1"), "tensor 't': 'dtype' is missing"},
      {file_of(R"({"t":{"dtype":"U8","data_offsets":[0,1]}})", "1"), "'shape' is missing"},
      {file_of(R"({"t":{"dtype":"U8","shape":[1]}})", "1"), "'data_offsets' is missing"},
      {file_of(tensor("F33", "[1]", "[0,4]"), "1234"), "unknown dtype \"F33\""},
      {file_of(tensor("F32", "1", "[0,4]"), "1234"), "'shape' is not a list"},
      {file_of(tensor("F32", "[-1]", "[0,4]"), "1234"), "got -1"},
      {file_of(tensor("F32", "[1.0]", "[0,4]"), "1234"), "got 1.0"},
      {file_of(tensor("F32", "[9223372036854775808]", "[0,4]"), "1234"), "got 9223372036854775808"},
      {file_of(tensor("F32", "[4611686018427387904,2]", "[0,0]"), ""), "overflows 63 bits"},
      {file_of(tensor("F32", "[1]", "[0]"), "1234"), "'data_offsets' is not a pair"},
      {file_of(tensor("F32", "[1]", "[4,0]"), "1234"), "data_offsets [4, 0] are outside the 4 bytes"},
      {file_of(tensor("F32", "[1]", "[0,5]"), "1234"), "data_offsets [0, 5] are outside the 4 bytes"},
      {file_of(tensor("F32", "[2]", "[0,4]"), "1234"), "shape [2] of F32 takes 8 bytes, data_offsets [0, 4] give 4"},
      {file_of(tensor("F32", "[1]", "[1,5]"), "12345"), "starts at byte 1 of the data, 0 was expected: there is a gap"},
      {file_of(tensor("F32", "[1]", "[0,4]"), "12345"), "5 bytes of data, the tensors use 4"},
      {file_of(two("[0,2]", "[1,3]"), "123"), "tensor 't' starts at byte 1 of the data, 2 was expected: it overlaps"},
      {file_of(two("[0,2]", "[0,2]"), "12"), "it overlaps"},
      {file_of(two("[0,2]", "[3,5]"), "12345"), "there is a gap"},
      {file_of(R"({"__metadata__":[]})", ""), "__metadata__ is not an object"},
      {file_of(R"({"__metadata__":{"k":1}})", ""), "__metadata__ 'k' is not a string"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.file.substr(0, 200));
    expect_error(ErrorKind::environment, row.says, [&] { parse(row.file); });
  }
}

TEST(Safetensors, WritesAlignedTensorsThatAreReadBack) {
  const test::TemporaryDirectory folder;
  const auto path = folder.path() / "x.safetensors";
  const std::array<std::uint16_t, 3> half = {1, 2, 3};
  const std::array<float, 4> single = {1, 2, 3, 4};
  const double real = 5;
  const NamedTensor tensors[] = {{"half", DType::bf16, {3}, half.data()},
                                 {"single", DType::f32, {2, 2}, single.data()},
                                 {"real", DType::f64, {}, &real},
                                 {"none", DType::f32, {0}, nullptr}};
  write_safetensors(path, tensors, {{"k", "\"v\"\n"}});
  EXPECT_EQ(test::files_in(folder.path()), 1);
  const Safetensors read = Safetensors::open(path);
  EXPECT_EQ(read.metadata(), (Metadata{{"k", "\"v\"\n"}}));
  for (const NamedTensor& tensor : tensors) {
    const NamedTensor back = read.as_float(read.at(tensor.name));
    EXPECT_EQ(back.dtype, tensor.dtype);
    EXPECT_EQ(back.shape, tensor.shape);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(back.data) % size_of(back.dtype), 0u);
    if (tensor.data) {
      EXPECT_EQ(std::memcmp(back.data, tensor.data, read.at(tensor.name).bytes.size()), 0);
    }
  }
}

TEST(Safetensors, WhatCannotBeWrittenLeavesNoFile) {
  const test::TemporaryDirectory folder;
  const float x = 1;
  const NamedTensor twice[] = {{"a", DType::f32, {1}, &x}, {"a", DType::f32, {1}, &x}};
  expect_error(ErrorKind::caller, "two tensors are named 'a'",
               [&] { write_safetensors(folder.path() / "x", twice, {}); });
  const NamedTensor binary[] = {{"\xff", DType::f32, {1}, &x}};
  expect_error(ErrorKind::caller, "not UTF-8", [&] { write_safetensors(folder.path() / "x", binary, {}); });
  EXPECT_EQ(test::files_in(folder.path()), 0);
}

}  // namespace
}  // namespace gnomon
