// The resident stack's wide form (kernels/resident_wide.cuh): a sequence's features shared by a cluster of two.
// resident.hpp is the way in; this is what differs.
#pragma once

#include "cuda/resident.hpp"

namespace gnomon::cuda {

// The form, where it can run and there are sequences for at least half of the device.
std::vector<ResidentForm> wide_forms(const ResidentSpec& spec, const DeviceProperties& device);

std::optional<std::string> refuses_wide(const ResidentSpec& spec, const ResidentForm& form,
                                        const DeviceProperties& device);
KernelSource wide_source(const ResidentSpec& spec, const ResidentForm& form);
LaunchShape wide_shape(const ResidentSpec& spec, const ResidentForm& form, const DeviceProperties& device);

}  // namespace gnomon::cuda
