// The resident stack's split form (kernels/resident_split.cuh): a sequence shared by a cluster. resident.hpp is the way
// in; this is what differs.
#pragma once

#include "cuda/resident.hpp"

namespace gnomon::cuda {

// Those that can run, the most CTAs to a sequence first.
std::vector<ResidentForm> split_forms(const ResidentSpec& spec, const DeviceProperties& device);

std::optional<std::string> refuses_split(const ResidentSpec& spec, const ResidentForm& form,
                                         const DeviceProperties& device);
KernelSource split_source(const ResidentSpec& spec, const ResidentForm& form);
LaunchShape split_shape(const ResidentSpec& spec, const ResidentForm& form, const DeviceProperties& device);

}  // namespace gnomon::cuda
