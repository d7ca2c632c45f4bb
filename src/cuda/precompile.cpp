#include "cuda/precompile.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "core/error.hpp"
#include "cuda/asked_kernels.hpp"
#include "cuda/nvrtc.hpp"
#include "cuda/resource_report.hpp"

namespace gnomon::cuda {
namespace {

struct Item {
  AskedKernel asked;
  Architecture architecture;
};

// "gnomon::kernels::" in front of every name says nothing.
std::string short_name(std::string name) {
  for (const std::string_view word : {"gnomon::kernels::resident::", "gnomon::kernels::"}) {
    for (std::size_t at = name.find(word); at != std::string::npos; at = name.find(word)) name.erase(at, word.size());
  }
  return name;
}

void add_resources(const CompiledKernel& kernel, KernelReport& report) {
  report.portable = kernel.architecture.starts_with("compute_");
  if (report.portable) return;
  const ResourceReport used = report_on(kernel);
  report.registers = used.registers;
  report.stack_bytes = used.stack_bytes;
  report.spilled_bytes = used.spill_store_bytes + used.spill_load_bytes;
  report.static_shared_bytes = used.static_shared_bytes;
}

KernelReport obtain(Compiler& compiler, const Item& item) {
  KernelReport report;
  report.name = short_name(item.asked.source.to_string());
  report.architecture = item.architecture.name();
  report.dynamic_shared_bytes = item.asked.dynamic_shared_bytes;
  const auto start = std::chrono::steady_clock::now();
  try {
    report.key = compiler.key(item.asked.source, item.architecture);
    const auto kernel = compiler.get(item.asked.source, item.architecture);
    report.from_cache = kernel->from_disk;
    add_resources(*kernel, report);
  } catch (const Error& error) {
    report.failed = error.what();
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace

KernelWishes precompile(const KernelWish& wish) {
  nvrtc();  // what is missing is missed here, in one line
  KernelWishes answer;
  std::vector<Item> items;
  for (const std::string& name : wish.architectures) {
    const Architecture architecture = Architecture::parse(name);
    AskedKernels asked = asked_kernels(architecture, wish.problems);
    for (AskedKernel& kernel : asked.kernels) items.push_back({std::move(kernel), architecture});
    answer.candidates += asked.candidates;
    answer.missed.insert(answer.missed.end(), asked.missed.begin(), asked.missed.end());
  }
  // The resident stack takes longest: begun last, one of them would be waited for alone.
  std::ranges::stable_partition(items, [](const Item& item) { return item.asked.source.file.starts_with("resident"); });
  answer.kernels.resize(items.size());
  if (wish.begin) wish.begin(items.size());

  Compiler compiler(wish.cache);
  std::atomic<std::size_t> next = 0;
  std::mutex telling;
  const auto work = [&] {
    for (std::size_t at = next++; at < items.size(); at = next++) {
      answer.kernels[at] = obtain(compiler, items[at]);
      const std::lock_guard lock(telling);
      if (wish.each) wish.each(answer.kernels[at]);
    }
  };
  std::vector<std::jthread> helpers;
  for (int i = 1; i < wish.threads; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  return answer;
}

std::vector<KernelFile> kernel_files(const std::filesystem::path& cache) {
  std::vector<KernelFile> files;
  for (const KernelCache::File& file : KernelCache(cache).list()) {
    files.push_back({.file = file.path.filename().string(),
                     .name = short_name(file.kernel.source),
                     .architecture = file.kernel.architecture,
                     .compiler = file.kernel.compiler,
                     .bytes = file.bytes,
                     .unusable = file.unusable});
  }
  return files;
}

KernelFilesRemoved remove_kernel_files(const std::filesystem::path& cache) {
  const KernelCache::Removed removed = KernelCache(cache).clear();
  return {removed.files, removed.bytes};
}

}  // namespace gnomon::cuda
