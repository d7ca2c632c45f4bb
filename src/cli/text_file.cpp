#include "cli/text_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "core/error.hpp"

namespace gnomon::cli {
namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

}  // namespace

std::string read_text(const std::string& source) {
  const File opened(source == "-" ? nullptr : std::fopen(source.c_str(), "rb"));
  std::FILE* const file = source == "-" ? stdin : opened.get();
  std::string text;
  char block[1 << 16];
  while (file != nullptr) {
    const std::size_t got = std::fread(block, 1, sizeof block, file);
    text.append(block, got);
    if (got < sizeof block) break;
  }
  if (file == nullptr || std::ferror(file) != 0) throw_environment("cannot read {}: {}", source, std::strerror(errno));
  return text;
}

void write_text(const std::string& target, const std::string& text) {
  if (target == "-") {
    fmt::print("{}", text);  // main() looks whether stdout took it
    return;
  }
  File file(std::fopen(target.c_str(), "wb"));
  const bool written = file && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (!written || std::fclose(file.release()) != 0)
    throw_environment("cannot write {}: {}", target, std::strerror(errno));
}

}  // namespace gnomon::cli
