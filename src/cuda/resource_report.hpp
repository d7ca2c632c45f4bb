// What a compiled kernel uses, read from the assembler's report and from the machine code itself: no device and no
// disassembler needed.
#pragma once

#include <string>
#include <vector>

#include "cuda/compiler.hpp"

namespace gnomon::cuda {

struct ResourceReport {
  int registers = 0;
  int stack_bytes = 0, spill_store_bytes = 0, spill_load_bytes = 0;
  int static_shared_bytes = 0;
  bool wgmma_serialized = false;      // the assembler made asynchronous products wait for each other
  std::vector<std::string> warnings;  // all other lines of the log that warn
  int instructions = 0;
  int mma = 0;    // HMMA: products of mma.sync
  int wgmma = 0;  // HGMMA: products of wgmma

  std::string to_string() const;
};

// Internal error when the image is PTX, or the log holds no report.
ResourceReport report_on(const CompiledKernel& kernel);

}  // namespace gnomon::cuda
