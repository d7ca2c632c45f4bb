#include "core/file.hpp"

#include <string>

#include "core/expect_error.hpp"
#include "core/files.hpp"

namespace gnomon {
namespace {

TEST(File, IsMappedWhole) {
  const test::TemporaryDirectory folder;
  const MappedFile file = map_file(test::write_file(folder.path() / "a", "content"));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()), "content");
  EXPECT_TRUE(map_file(test::write_file(folder.path() / "b", "")).bytes.empty());
}

TEST(File, WhatIsNoFileIsRefused) {
  const test::TemporaryDirectory folder;
  expect_error(ErrorKind::environment, "No such file", [&] { map_file(folder.path() / "absent"); });
  expect_error(ErrorKind::environment, "not a regular file", [&] { map_file(folder.path()); });
}

TEST(FileWriter, TheNameHoldsOldOrNewContentAndNothingElseIsLeft) {
  const test::TemporaryDirectory folder;
  const auto path = test::write_file(folder.path() / "a", "old");
  {
    FileWriter abandoned(path);
    abandoned.write("new", 3);
    EXPECT_EQ(test::read_file(path), "old");
  }
  EXPECT_EQ(test::read_file(path), "old");
  FileWriter written(path);
  written.write("ne", 2);
  written.write("w", 1);
  written.commit();
  EXPECT_EQ(test::read_file(path), "new");
  EXPECT_EQ(test::files_in(folder.path()), 1);
}

TEST(FileWriter, AFolderThatIsNotThereIsNamed) {
  const test::TemporaryDirectory folder;
  expect_error(ErrorKind::environment, "absent/a: cannot be created: No such file",
               [&] { FileWriter(folder.path() / "absent" / "a"); });
}

}  // namespace
}  // namespace gnomon
