#include "core/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/error.hpp"

namespace gnomon {
namespace {

struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

}  // namespace

MappedFile map_file(const std::filesystem::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat status {};
  if (file.value < 0 || ::fstat(file.value, &status) != 0) {
    throw_environment("{}: cannot be read: {}", path.string(), std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) throw_environment("{}: is not a regular file", path.string());
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return {};
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (address == MAP_FAILED) {
    throw_environment("{}: {} bytes cannot be mapped: {}", path.string(), size, std::strerror(errno));
  }
  std::shared_ptr<const void> mapping(address, [size](const void* p) { ::munmap(const_cast<void*>(p), size); });
  return {{static_cast<const std::byte*>(address), size}, std::move(mapping)};
}

FileWriter::FileWriter(const std::filesystem::path& path) : path_(path), aside_(path) {
  // The process and a count in the name: writers of one file, threads too, each have their own.
  static std::atomic<unsigned> count{0};
  aside_ += fmt::format(".{}.{}.tmp", ::getpid(), count++);
  descriptor_ = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("created");
}

FileWriter::~FileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(aside_.c_str());
}

void FileWriter::write(const void* data, std::size_t bytes) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 30;  // the system call takes less than 2 GiB
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(descriptor_, at, std::min(bytes, kAtOnce));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail("written");
    at += done;
    bytes -= static_cast<std::size_t>(done);
  }
}

void FileWriter::commit() {
  // Without the sync, a crash after the rename could leave the name with no data.
  if (::fsync(descriptor_) != 0 && errno != EINVAL) fail("written");
  if (::rename(aside_.c_str(), path_.c_str()) != 0) fail("renamed to its name");
  ::close(descriptor_);
  descriptor_ = -1;
}

void FileWriter::fail(const char* step) const {
  throw_environment("{}: cannot be {}: {}", path_.string(), step, std::strerror(errno));
}

}  // namespace gnomon
