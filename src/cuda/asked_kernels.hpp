// Which kernels a device of an architecture would ask for, found by running the backend's own code on an absent device
// (absent_device.hpp): no list of kernels is written twice.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/problem.hpp"
#include "cuda/compiler.hpp"

namespace gnomon::cuda {

struct AskedKernel {
  KernelSource source;
  int dynamic_shared_bytes = 0;  // the most of its launches
};

struct AskedKernels {
  std::vector<AskedKernel> kernels;
  int candidates = 0;               // whose kernels these are; those that differ in no kernel count once
  std::vector<std::string> missed;  // candidates that could not be looked into, with the reason
};

// Of all candidates that the planner may come to for these problems, whatever it finds fastest: the search's groups
// from every candidate that they lead to. Includes the reference path, the judge, and the fp32 pass behind a reduced
// one; for tensors that are contiguous and aligned. Not while another thread uses this backend.
AskedKernels asked_kernels(const Architecture& architecture, std::span<const Problem> problems);

}  // namespace gnomon::cuda
