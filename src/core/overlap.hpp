// Do two strided boxes of memory share a byte? Exact for every layout a tensor library makes.
#pragma once

#include <array>
#include <cstdint>

namespace gnomon {

// The bytes of elements at address + sum(index_k * strides_k), 0 <= index_k < shape_k; strides in bytes.
struct StridedBytes {
  const void* data = nullptr;
  std::int64_t element = 0;
  std::array<std::int64_t, 3> shape{1, 1, 1}, strides{};  // fixed, so that a call costs no allocation
};

// Byte offsets that `box` reaches, relative to its data: [first, past).
struct ByteRange {
  std::int64_t first = 0, past = 0;
};
ByteRange range_of(const StridedBytes& box);  // caller error when an offset does not fit 63 bits

bool overlaps(const StridedBytes& a, const StridedBytes& b);
bool overlaps_itself(const StridedBytes& box);  // two different indices share a byte

}  // namespace gnomon
