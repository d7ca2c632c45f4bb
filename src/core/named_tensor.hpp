// A tensor by name in somebody's memory, contiguous row-major. `data` may be unaligned for its type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.hpp"

namespace gnomon {

struct NamedTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;
};

}  // namespace gnomon
