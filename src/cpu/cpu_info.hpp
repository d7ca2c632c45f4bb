// What this machine's CPU is, for plan environments and reports.
#pragma once

#include <cstdint>
#include <string>

namespace gnomon::cpu {

struct CpuInfo {
  std::string model;  // "AMD EPYC (family 26 model 2)"
  int family = 0, model_number = 0;
  int cores = 1;           // that this process may use
  std::string isa;         // of our vector code: SSE4, AVX2, AVX3 (AVX-512), NEON
  std::string onednn_isa;  // the newest set that oneDNN will use
  std::string onednn_version, highway_version;
  std::int64_t l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // of one core; L3 shared. 0: not told
  bool bf16 = false;                                       // bf16 products in hardware
};

const CpuInfo& cpu_info();

}  // namespace gnomon::cpu
