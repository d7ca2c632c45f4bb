#include "cuda/kernel_cache.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <tuple>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/fingerprint.hpp"
#include "core/log.hpp"

namespace gnomon::cuda {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMagic = KernelCache::kFormat;
constexpr const char* kEnding = ".kernel";

// The texts of a file, in their order.
template <typename Kernel, typename Visit>
bool each_text(Kernel& kernel, Visit visit) {
  return visit(kernel.source) && visit(kernel.architecture) && visit(kernel.compiler) && visit(kernel.symbol) &&
         visit(kernel.log) && visit(kernel.image);
}

bool append(std::string& to, std::string_view text) {
  const std::uint64_t size = text.size();
  to.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
  return true;
}

bool take(std::string_view& from, std::string& text) {
  std::uint64_t size = 0;
  if (from.size() < sizeof size) return false;
  std::memcpy(&size, from.data(), sizeof size);
  from.remove_prefix(sizeof size);
  if (size > from.size()) return false;
  text = from.substr(0, size);
  from.remove_prefix(size);
  return true;
}

// Empty: it is whole. Environment error when it cannot be read.
std::string parse(const fs::path& file, CompiledKernel& kernel) {
  const MappedFile mapped = map_file(file);
  std::string_view rest(reinterpret_cast<const char*>(mapped.bytes.data()), mapped.bytes.size());
  std::uint64_t sum = 0;
  if (!rest.starts_with(kMagic))
    return rest.starts_with("gnomon kernel ") ? "is of another version of Gnomon" : "is no compiled kernel";
  rest.remove_prefix(kMagic.size());
  if (rest.size() < sizeof sum) return "is cut short";
  std::memcpy(&sum, rest.data(), sizeof sum);
  rest.remove_prefix(sizeof sum);
  if (hash_bytes(rest.data(), rest.size(), 0) != sum) return "is damaged";
  if (!each_text(kernel, [&](std::string& text) { return take(rest, text); })) return "is damaged";
  kernel.from_disk = true;
  return {};
}

// What writers put beside a file before they rename it: NAME.kernel.PID.COUNT.tmp.
bool is_left_over(const fs::path& path) {
  return path.extension() == ".tmp" && path.filename().string().find(std::string(kEnding) + ".") != std::string::npos;
}

}  // namespace

fs::path default_kernel_cache() {
  if (const char* own = std::getenv("GNOMON_KERNEL_CACHE")) return own;
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value ? fs::path(value) : fs::path();
  };
  if (fs::path cache = set("XDG_CACHE_HOME"); !cache.empty()) return cache / "gnomon" / "kernels";
  if (fs::path home = set("HOME"); !home.empty()) return home / ".cache" / "gnomon" / "kernels";
  return {};
}

std::optional<CompiledKernel> KernelCache::read(const std::string& name) const {
  if (!enabled()) return {};
  const fs::path file = folder_ / (name + kEnding);
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  try {
    CompiledKernel kernel;
    const std::string fault = parse(file, kernel);
    if (fault.empty()) return kernel;
    log::warn_once("kernel file " + file.string(), fmt::format("{} {}: it is compiled anew", file.string(), fault));
  } catch (const std::exception& error) {
    log::warn_once("kernel cache " + folder_.string(), fmt::format("kernel cache: {}", error.what()));
  }
  return {};
}

void KernelCache::write(const std::string& name, const CompiledKernel& kernel) const {
  if (!enabled()) return;
  std::string body;
  each_text(kernel, [&](const std::string& text) { return append(body, text); });
  const std::uint64_t sum = hash_bytes(body.data(), body.size(), 0);
  try {
    fs::create_directories(folder_);
    FileWriter writer(folder_ / (name + kEnding));
    writer.write(kMagic.data(), kMagic.size());
    writer.write(&sum, sizeof sum);
    writer.write(body.data(), body.size());
    writer.commit();
  } catch (const std::exception& error) {
    log::warn_once("kernel cache " + folder_.string(),
                   fmt::format("compiled kernels are kept in memory only: {}", error.what()));
  }
}

std::vector<KernelCache::File> KernelCache::list() const {
  std::vector<File> files;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder_, missing)) {
    if (entry.path().extension() != kEnding) continue;
    File& file = files.emplace_back();
    file.path = entry.path();
    try {
      file.bytes = entry.file_size();
      file.unusable = parse(file.path, file.kernel);
    } catch (const std::exception& error) {
      file.unusable = error.what();
    }
    file.kernel.image.clear();
    file.kernel.log.clear();
  }
  std::ranges::sort(
      files, {}, [](const File& file) { return std::tuple(file.kernel.architecture, file.kernel.source, file.path); });
  return files;
}

KernelCache::Removed KernelCache::clear() const {
  Removed removed;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder_, missing)) {
    if (entry.path().extension() != kEnding && !is_left_over(entry.path())) continue;
    std::error_code error;
    const std::uintmax_t bytes = entry.file_size(error);
    const bool gone = !fs::remove(entry.path(), error) && !error;  // somebody else was faster
    if (error) throw_environment("{} cannot be removed: {}", entry.path().string(), error.message());
    if (gone) continue;
    ++removed.files;
    removed.bytes += bytes;
  }
  return removed;
}

}  // namespace gnomon::cuda
