// What `gnomon kernels` asks of a device's backend, and what it is told: kernels compiled ahead of time with no device
// there, and the files that they are kept in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/problem.hpp"

namespace gnomon {

struct KernelReport {
  std::string name;          // "norm.cuh: norm_rows<...>"
  std::string architecture;  // "sm_90a"
  std::string key;           // its file's name
  bool from_cache = false;
  double seconds = 0;  // to compile it, or to read it
  std::string failed;  // why there is none
  // The rest is the assembler's report, which PTX has not: the driver makes machine code of it.
  bool portable = false;
  int registers = 0, stack_bytes = 0, spilled_bytes = 0;
  int static_shared_bytes = 0;
  int dynamic_shared_bytes = 0;  // the most that its launches ask for
};

struct KernelWish {
  std::vector<std::string> architectures;
  std::vector<Problem> problems;
  std::filesystem::path cache;
  int threads = 1;
  std::function<void(std::size_t wanted)> begin;                   // once, before the first is compiled
  std::function<void(const KernelReport& report)> each = nullptr;  // as they come, one at a time
};

struct KernelWishes {
  std::vector<KernelReport> kernels;
  int candidates = 0;               // whose kernels these are
  std::vector<std::string> missed;  // candidates that could not be looked into, and why
};

struct KernelFile {
  std::string file, name, architecture, compiler;
  std::uintmax_t bytes = 0;
  std::string unusable;  // why no process takes it
};

struct KernelFilesRemoved {
  int files = 0;
  std::uintmax_t bytes = 0;
};

// Empty folder: kernels are kept in memory only.
struct DeviceKernels {
  KernelWishes (*precompile)(const KernelWish& wish);  // caller error on an unknown architecture
  std::vector<std::string> (*architectures)();         // that can be precompiled for
  std::filesystem::path (*default_cache)();
  std::vector<KernelFile> (*list)(const std::filesystem::path& cache);
  KernelFilesRemoved (*clear)(const std::filesystem::path& cache);
};

}  // namespace gnomon
