#include "cpu/cpu_info.hpp"

#include <dnnl.h>
#include <fmt/format.h>
#include <hwy/highway.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "cpu/thread_pool.hpp"
#include "cpu/vec_kernels.hpp"

namespace gnomon::cpu {
namespace {

// "key : value" lines of the first processor.
std::map<std::string, std::string> proc_cpuinfo() {
  std::map<std::string, std::string> facts;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    facts[key] = colon + 2 <= line.size() ? line.substr(colon + 2) : "";
  }
  return facts;
}

int number(const std::map<std::string, std::string>& facts, const char* key) {
  const auto found = facts.find(key);
  return found == facts.end() ? 0 : std::atoi(found->second.c_str());
}

std::string onednn_isa_name() {
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
      return "sse41";
    case dnnl_cpu_isa_avx:
      return "avx";
    case dnnl_cpu_isa_avx2:
      return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
      return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core:
      return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
      return "avx512_core_amx";
    default:
      return fmt::format("isa {:#x}", static_cast<unsigned>(dnnl_get_effective_cpu_isa()));
  }
}

CpuInfo read() {
  CpuInfo info;
  const auto facts = proc_cpuinfo();
  info.family = number(facts, "cpu family");
  info.model_number = number(facts, "model");
  const auto name = facts.find("model name");
  if (name != facts.end()) {
    info.model = fmt::format("{} (family {} model {})", name->second, info.family, info.model_number);
  } else {  // Arm says who made the core, and which it is
    const auto fact = [&](const char* key) { return facts.contains(key) ? facts.at(key) : "?"; };
    info.model = fmt::format("CPU (implementer {} part {})", fact("CPU implementer"), fact("CPU part"));
  }
  info.cores = available_cores();
  info.isa = std::string(vec_kernels().isa);
  info.onednn_isa = onednn_isa_name();
  const dnnl_version_t* dnnl = dnnl_version();
  info.onednn_version = fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch);
  info.highway_version = fmt::format("{}.{}.{}", HWY_MAJOR, HWY_MINOR, HWY_PATCH);
  const auto size = [](int key) { return std::max<std::int64_t>(0, sysconf(key)); };
  info.l1d_bytes = size(_SC_LEVEL1_DCACHE_SIZE);
  info.l2_bytes = size(_SC_LEVEL2_CACHE_SIZE);
  info.l3_bytes = size(_SC_LEVEL3_CACHE_SIZE);
  const auto flags = facts.find("flags");
  info.bf16 = flags != facts.end() && flags->second.find("avx512_bf16") != std::string::npos;
  return info;
}

}  // namespace

const CpuInfo& cpu_info() {
  static const CpuInfo info = read();
  return info;
}

}  // namespace gnomon::cpu
