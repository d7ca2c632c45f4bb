// Whole files: read through a mapping, written aside and renamed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace gnomon {

// A read-only private mapping of a regular file. An empty file maps to an empty span.
struct MappedFile {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> mapping;  // keeps `bytes` valid
};
MappedFile map_file(const std::filesystem::path& path);  // environment error with the system's reason

// A file that appears under its name complete or not at all: written beside it, then renamed over it.
class FileWriter {
 public:
  explicit FileWriter(const std::filesystem::path& path);
  ~FileWriter();  // without commit(): nothing is left behind
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, std::size_t bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* step) const;

  std::filesystem::path path_, aside_;
  int descriptor_ = -1;
};

}  // namespace gnomon
