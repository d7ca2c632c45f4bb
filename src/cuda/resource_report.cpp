#include "cuda/resource_report.hpp"

#include <elf.h>

#include <cstring>
#include <regex>
#include <sstream>

#include "core/error.hpp"

namespace gnomon::cuda {
namespace {

// From compute capability 7.0 on, every instruction is 16 bytes and bits 0 to 8 name the operation (bits 9 to 11: where
// the operands come from).
constexpr unsigned kOperation = 0x1ff, kHmma = 0x03c, kHgmma = 0x1f0;

template <typename T>
T load(const std::string& image, std::size_t at) {
  if (at + sizeof(T) > image.size()) throw_internal("a cubin ends before its byte {}", at + sizeof(T));
  T value;
  std::memcpy(&value, image.data() + at, sizeof value);
  return value;
}

void count_instructions(const CompiledKernel& kernel, ResourceReport& report) {
  const std::string& image = kernel.image;
  const auto header = load<Elf64_Ehdr>(image, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) throw_internal("{} is no cubin", kernel.symbol);
  const auto section = [&](unsigned index) {
    return load<Elf64_Shdr>(image, header.e_shoff + index * sizeof(Elf64_Shdr));
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    if (image.c_str() + names.sh_offset + s.sh_name != ".text." + kernel.symbol) continue;
    for (std::size_t at = 0; at + 16 <= s.sh_size; at += 16) {
      const unsigned operation = load<std::uint32_t>(image, s.sh_offset + at) & kOperation;
      ++report.instructions;
      report.mma += operation == kHmma;
      report.wgmma += operation == kHgmma;
    }
  }
  if (report.instructions == 0) throw_internal("a cubin holds no code of {}", kernel.symbol);
}

}  // namespace

std::string ResourceReport::to_string() const {
  return fmt::format(
      "{} registers, {} B stack, {}/{} B spilled, {} B static shared, {} instructions, {} mma, {} wgmma{}", registers,
      stack_bytes, spill_store_bytes, spill_load_bytes, static_shared_bytes, instructions, mma, wgmma,
      wgmma_serialized ? ", wgmma serialized" : "");
}

ResourceReport report_on(const CompiledKernel& kernel) {
  static const std::regex stack(R"((\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads)");
  static const std::regex used(R"(Used (\d+) registers)"), shared(R"((\d+) bytes smem)");
  ResourceReport report;
  std::istringstream lines(kernel.log);
  std::smatch match;
  bool ours = false, seen = false;  // a log may report on device functions as well
  for (std::string line; std::getline(lines, line);) {
    if (line.find("serialized") != std::string::npos && line.find("wgmma") != std::string::npos)
      report.wgmma_serialized = true;
    else if (line.find("warning") != std::string::npos)
      report.warnings.push_back(line);
    if (line.find("Compiling entry function") != std::string::npos)
      ours = line.find("'" + kernel.symbol + "'") != std::string::npos;
    if (!ours) continue;
    if (std::regex_search(line, match, stack)) {
      report.stack_bytes = std::max(report.stack_bytes, std::stoi(match[1]));
      report.spill_store_bytes += std::stoi(match[2]);
      report.spill_load_bytes += std::stoi(match[3]);
    }
    if (std::regex_search(line, match, used)) {
      report.registers = std::stoi(match[1]);
      seen = true;
      if (std::regex_search(line, match, shared)) report.static_shared_bytes = std::stoi(match[1]);
    }
  }
  if (!seen) throw_internal("the compiler's log does not report on {}:\n{}", kernel.symbol, kernel.log);
  count_instructions(kernel, report);
  return report;
}

}  // namespace gnomon::cuda
