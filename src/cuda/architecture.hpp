// What code is compiled for: "sm_80" to "sm_120" are machine code of one compute capability, "sm_90a" with the
// instructions that only it has; "compute_80" is PTX, which the driver translates for any device from 8.0.
#pragma once

#include <string>
#include <string_view>

namespace gnomon::cuda {

struct Architecture {
  int major = 8, minor = 0;
  bool accelerated = false;  // sm_90a: wgmma, setmaxnreg
  bool portable = false;     // compute_80: PTX

  static Architecture of_device(int major, int minor) { return {major, minor, major == 9 && minor == 0, false}; }
  static Architecture parse(std::string_view name);  // caller error
  std::string name() const;
  bool operator==(const Architecture&) const = default;
};

}  // namespace gnomon::cuda
