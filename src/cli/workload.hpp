// A random input for a problem: N(0, 1), reproducible from its seed; with a padding mask when the problem has one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/buffer.hpp"
#include "cli/device_call.hpp"
#include "core/problem.hpp"
#include "core/weights.hpp"

namespace gnomon::cli {

enum class MaskKind { right, left, holes, all_valid, one_empty };
inline constexpr MaskKind all_mask_kinds[] = {MaskKind::right, MaskKind::left, MaskKind::holes, MaskKind::all_valid,
                                              MaskKind::one_empty};
std::string_view name_of(MaskKind kind);

// Of a file, or random when there is none.
Weights weights_of(const std::string& file, const StackConfig& config, std::uint64_t seed);

class Workload {
 public:
  Workload(const Problem& problem, std::uint64_t seed, MaskKind kind = MaskKind::right);

  // On the problem's device, into its own output, which is the input when the problem says inplace.
  const Call& call() const { return call_.call(); }
  static std::size_t bytes(const Problem& problem);  // of one activation

 private:
  Call on_host();

  Problem problem_;
  Buffer input_, output_;
  std::vector<std::uint8_t> mask_;
  DeviceCall call_;
};

}  // namespace gnomon::cli
