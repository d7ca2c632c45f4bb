// The resident stack's split form (kernels/resident_split.cuh): a sequence shared by a cluster. resident.hpp is the way
// in; this is what differs.
#pragma once

#include "cuda/resident.hpp"

namespace gnomon::cuda {

// Not seen on a GPU yet: no form that the planner tries by itself. To end that, resident_forms() appends these.
std::vector<ResidentForm> split_forms(const ResidentSpec& spec, const DeviceProperties& device);

std::optional<std::string> refuses_split(const ResidentSpec& spec, const ResidentForm& form,
                                         const DeviceProperties& device);
KernelSource split_source(const ResidentSpec& spec, const ResidentForm& form);
LaunchShape split_shape(const ResidentSpec& spec, const ResidentForm& form, const DeviceProperties& device);

}  // namespace gnomon::cuda
