// The file system's side of the plan store: many processes, any of which may die at any moment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace gnomon::store_io {

// Changes whenever the file is replaced.
struct Stamp {
  bool exists = false;
  std::uint64_t inode = 0;
  std::int64_t size = 0, seconds = 0, nanoseconds = 0;
  bool operator==(const Stamp&) const = default;
};
Stamp stamp_of(const std::filesystem::path& file);

// Nothing when there is none; an Error when it is no file to be read, a std::system_error when it cannot be read now.
std::optional<std::string> read_file(const std::filesystem::path& file);

// flock on FILE.lock, beside the file because the file itself is replaced. The kernel gives it back when a process
// dies.
class Lock {
 public:
  explicit Lock(const std::filesystem::path& file);  // environment error when nobody yields it in time
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int descriptor_;
};

// The rest is called under the lock.
void remove_leftovers(const std::filesystem::path& file);                // temporary files whose writers died
void put_aside(const std::filesystem::path& file);                       // to FILE.broken, for whoever wants to know
void replace(const std::filesystem::path& file, std::string_view text);  // written aside, synced, renamed

}  // namespace gnomon::store_io
