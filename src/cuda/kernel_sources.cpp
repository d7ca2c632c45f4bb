#include "cuda/kernel_sources.hpp"

#include <algorithm>
#include <vector>

#include "core/error.hpp"
#include "core/fingerprint.hpp"

namespace gnomon::cuda {
namespace {

std::string_view text_of(std::span<const SourceFile> sources, std::string_view file) {
  const auto found = std::ranges::find(sources, file, &SourceFile::name);
  if (found != sources.end()) return found->text;
  throw_internal("there is no kernel source named '{}'", file);
}

}  // namespace

std::uint64_t kernel_sources_hash() {
  std::uint64_t hash = 0;
  for (const SourceFile& file : kernel_sources()) {
    hash = hash_bytes(file.name.data(), file.name.size(), hash);
    hash = hash_bytes(file.text.data(), file.text.size(), hash);
  }
  return hash;
}

std::string with_includes(std::span<const SourceFile> sources, std::string_view file) {
  std::vector<std::string_view> files = {file};
  std::string all;
  for (std::size_t i = 0; i < files.size(); ++i) {  // grows while it runs
    const std::string_view text = text_of(sources, files[i]);
    all.append(files[i]).append("\n").append(text);
    constexpr std::string_view include = "#include \"";
    for (std::size_t at = text.find(include); at != std::string_view::npos; at = text.find(include, at + 1)) {
      const std::size_t begin = at + include.size(), end = text.find('"', begin);
      const std::string_view name = text.substr(begin, end - begin);
      if (std::ranges::find(files, name) == files.end()) files.push_back(name);
    }
  }
  return all;
}

}  // namespace gnomon::cuda
