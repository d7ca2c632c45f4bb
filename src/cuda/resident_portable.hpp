// The resident stack's portable form (kernels/resident_portable.cuh), for every device from compute capability 8.0 on.
// resident.hpp is the way in; this is what differs.
#pragma once

#include "cuda/resident.hpp"

namespace gnomon::cuda {

// Those that can run: one sequence to a CTA, and where there are more of them than multiprocessors also several.
std::vector<ResidentForm> portable_forms(const ResidentSpec& spec, const DeviceProperties& device);

std::optional<std::string> refuses_portable(const ResidentSpec& spec, const ResidentForm& form,
                                            const DeviceProperties& device);
KernelSource portable_source(const ResidentSpec& spec, const ResidentForm& form);
LaunchShape portable_shape(const ResidentSpec& spec, const ResidentForm& form, const DeviceProperties& device);
int portable_stages(const ResidentSpec& spec, const ResidentForm& form, const DeviceProperties& device);

}  // namespace gnomon::cuda
