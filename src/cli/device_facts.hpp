// What is known of CUDA devices and libraries, as `gnomon info` and the results of `gnomon bench` name them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gnomon::cli {

// {"devices": {"cuda:0": {"name", "compute_capability", ...}}, "libraries": {"driver": "13.0", ...}}; instead of
// libraries "missing", the reason, when there is no backend, and no devices when there is none.
nlohmann::ordered_json cuda_facts();
nlohmann::ordered_json device_facts(const std::string& device);  // of "cuda:0"; its name alone when nothing is known

std::string device_text(const nlohmann::ordered_json& facts);        // "NVIDIA H200, compute capability 9.0, ..."
std::string versions_text(const nlohmann::ordered_json& libraries);  // "driver 13.0, NVRTC 13.0"

}  // namespace gnomon::cli
