#include "cuda/architecture.hpp"

#include <charconv>
#include <utility>

#include "core/error.hpp"

namespace gnomon::cuda {
namespace {

constexpr int kKiB = 1 << 10, kMiB = 1 << 20;
constexpr std::int64_t kGiB = 1 << 30;

constexpr ArchitectureFacts kFacts[] = {
    {8, 0, 163 * kKiB, 164 * kKiB, 2048, "NVIDIA A100", 108, 40 * kMiB, 80 * kGiB, 1.41e9, 2.04e12},
    {8, 6, 99 * kKiB, 100 * kKiB, 1536, "NVIDIA RTX A6000", 84, 6 * kMiB, 48 * kGiB, 1.8e9, 0.77e12},
    {8, 9, 99 * kKiB, 100 * kKiB, 1536, "NVIDIA L40S", 142, 96 * kMiB, 48 * kGiB, 2.52e9, 0.86e12},
    {9, 0, 227 * kKiB, 228 * kKiB, 2048, "NVIDIA H200", 132, 60 * kMiB, 140 * kGiB, 1.98e9, 4.9e12},
    {10, 0, 227 * kKiB, 228 * kKiB, 2048, "NVIDIA B200", 148, 126 * kMiB, 180 * kGiB, 1.97e9, 8e12},
    {12, 0, 99 * kKiB, 100 * kKiB, 1536, "NVIDIA GeForce RTX 5090", 170, 96 * kMiB, 32 * kGiB, 2.41e9, 1.79e12},
};

}  // namespace

std::span<const ArchitectureFacts> architecture_facts() { return kFacts; }

const ArchitectureFacts* facts_of(int major, int minor) {
  for (const ArchitectureFacts& facts : kFacts) {
    if (facts.major == major && facts.minor == minor) return &facts;
  }
  return nullptr;
}

Architecture Architecture::parse(std::string_view name) {
  Architecture a;
  std::string_view number = name;
  if (number.starts_with("sm_")) {
    number.remove_prefix(3);
  } else if (number.starts_with("compute_")) {
    number.remove_prefix(8);
    a.portable = true;
  } else {
    throw_caller("architecture: expected sm_80, sm_90a, compute_80 or the like, got '{}'", name);
  }
  if (number.ends_with('a')) {
    number.remove_suffix(1);
    a.accelerated = true;
  }
  int value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size() || value < 80 || value > 999) {
    throw_caller("architecture: expected a compute capability from 8.0 as in sm_80, got '{}'", name);
  }
  a.major = value / 10;
  a.minor = value % 10;
  return a;
}

std::string Architecture::name() const {
  return fmt::format("{}_{}{}{}", portable ? "compute" : "sm", major, minor, accelerated ? "a" : "");
}

std::optional<std::string> refuses_architecture(const Architecture& a) {
  const Architecture own = Architecture::of_device(a.major, a.minor);
  if (!own.accelerated ? !a.accelerated : a == own) return {};
  return fmt::format("a device of compute capability {}.{} takes {}{}", a.major, a.minor, own.name(),
                     own.accelerated ? "; the portable form for it is compute_80" : "");
}

// Machine code runs on devices of its own kind, PTX on all from its capability on.
Architecture architecture_for(int major, int minor, const char* asked) {
  const Architecture own = Architecture::of_device(major, minor);
  if (!asked || !*asked) return own;
  try {
    const Architecture wanted = Architecture::parse(asked);
    if (const auto reason = refuses_architecture(wanted)) throw_environment("{}", *reason);
    const bool kind = wanted.accelerated ? wanted == own : wanted.portable || wanted.major == major;
    if (!kind || std::pair(wanted.major, wanted.minor) > std::pair(major, minor))
      throw_environment("a device of compute capability {}.{} does not run it", major, minor);
    return wanted;
  } catch (const Error& error) {
    throw_environment("GNOMON_CUDA_ARCH={}: {}", asked, error.what());
  }
}

}  // namespace gnomon::cuda
