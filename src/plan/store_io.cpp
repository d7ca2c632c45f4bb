#include "plan/store_io.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include "core/error.hpp"

namespace gnomon::store_io {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestFile = std::int64_t{64} << 20;
constexpr int kLockTries = 1000;
constexpr auto kLockPause = std::chrono::milliseconds(10);

struct Descriptor {
  int value;
  explicit Descriptor(int descriptor) : value(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

[[noreturn]] void fail(const char* doing, const fs::path& file) {
  throw_environment("{} {}: {}", doing, file.string(), std::strerror(errno));
}

// A passing want of the process or the system, which says nothing of the file.
bool is_want(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM || error == EIO; }

fs::path temporary(const fs::path& file) { return file.string() + fmt::format(".{}.tmp", ::getpid()); }

void write_all(int descriptor, std::string_view text, const fs::path& file) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("cannot write", file);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

Stamp stamp_of(const fs::path& file) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) != 0) return {};
  return {true, facts.st_ino, facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec};
}

std::optional<std::string> read_file(const fs::path& file) {
  const Descriptor descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.value < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    if (is_want(errno)) throw std::system_error(errno, std::generic_category(), "cannot open " + file.string());
    fail("cannot open", file);
  }
  struct stat facts {};
  if (::fstat(descriptor.value, &facts) != 0) fail("cannot stat", file);
  if (!S_ISREG(facts.st_mode)) throw_environment("{} is no regular file", file.string());
  if (facts.st_size > kLargestFile) {
    throw_environment("{} has {} bytes, a plan file has at most {}", file.string(), facts.st_size, kLargestFile);
  }
  std::string text(static_cast<std::size_t>(facts.st_size), '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = ::read(descriptor.value, text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && is_want(errno))
      throw std::system_error(errno, std::generic_category(), "cannot read " + file.string());
    if (got < 0) fail("cannot read", file);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  text.resize(filled);
  return text;
}

Lock::Lock(const fs::path& file) {
  const fs::path path = file.string() + ".lock";
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("cannot open", path);
  for (int tries = 0; ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0; ++tries) {
    const bool wait = errno == EWOULDBLOCK || errno == EINTR;
    if (wait && tries < kLockTries) {
      std::this_thread::sleep_for(kLockPause);
      continue;
    }
    const int why = errno;
    ::close(descriptor_);
    throw_environment("cannot lock {}: {}", path.string(),
                      wait ? "another process holds it for 10 s" : std::strerror(why));
  }
}

Lock::~Lock() { ::close(descriptor_); }

void remove_leftovers(const fs::path& file) {
  std::error_code ignored;
  const std::string stem = file.filename().string() + ".";
  for (const auto& entry : fs::directory_iterator(file.parent_path(), ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(stem) && name.ends_with(".tmp")) fs::remove(entry.path(), ignored);
  }
}

void put_aside(const fs::path& file) {
  if (::rename(file.c_str(), (file.string() + ".broken").c_str()) != 0) fail("cannot put aside", file);
}

void replace(const fs::path& file, std::string_view text) {
  const fs::path aside = temporary(file);
  try {
    const Descriptor descriptor(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (descriptor.value < 0) fail("cannot create", aside);
    write_all(descriptor.value, text, aside);
    if (::fsync(descriptor.value) != 0) fail("cannot sync", aside);
    if (::rename(aside.c_str(), file.c_str()) != 0) fail("cannot rename to", file);
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
  const Descriptor folder(::open(file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.value >= 0)
    ::fsync(folder.value);  // the rename survives a power cut; where it cannot be asked for, it may not
}

}  // namespace gnomon::store_io
