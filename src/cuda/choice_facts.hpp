// What is known of a candidate without running it: what it approximates, how complex it is, what bounds its time, and
// about how long the plainest takes.
#pragma once

#include <string>
#include <vector>

#include "core/problem.hpp"
#include "cuda/choices.hpp"
#include "cuda/device.hpp"

namespace gnomon::cuda {

bool approximates_activation(const StackConfig& config, const Choices& choices);
bool has_paired_activation(const Choices& choices);
std::vector<std::string> approximations(const StackConfig& config, const Choices& choices);
int complexity(const Choices& choices);
double plain_seconds(const Problem& problem, const DeviceProperties& device);  // of the plain path, by arithmetic
std::string bound(const Problem& problem, const Choices& choices, double seconds, const DeviceProperties& device);

}  // namespace gnomon::cuda
