// load_rows on the device and on the emulator: a tensor's rows, loaded, and what they must be.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "cuda/arrays.hpp"
#include "cuda/kernels/params.cuh"

namespace gnomon::test {

struct LoadedRows {
  std::vector<double> wide, narrow, sizes;
  std::uint32_t flags = 0;
};

// `run` takes the tensor in the kernel's memory and what fills the parameters of a launch that has its strides.
template <typename Bytes, typename Run>
LoadedRows load_rows_of(const TestTensor& host, DType narrow, double least, double greatest, const TestMask* mask,
                        Run&& run) {
  using Array = ArrayOf<Bytes>;
  const TensorOf<Bytes> tensor(host);
  const auto& shape = host.view().shape;
  const std::int64_t rows = shape[0] * shape[1], width = shape[2];
  const Array wide(DType::f32, rows * width), small(narrow, rows * width), sizes(DType::f32, rows);
  const Array range(DType::f32, std::vector<double>{least, greatest}), flags(DType::f32, std::vector<double>{0});
  std::vector<std::uint8_t> mask_values;
  std::unique_ptr<Bytes> mask_bytes;
  if (mask) {
    for (std::int64_t b = 0; b < shape[0]; ++b) {
      for (std::int64_t s = 0; s < shape[1]; ++s) mask_values.push_back(mask->valid(b, s));
    }
    mask_bytes = std::make_unique<Bytes>(rows);
    mask_bytes->upload(mask_values.data());
  }
  run(tensor.const_view(), [&](kernels::LoadRows& p) {
    p.from = tensor.view().data;
    p.wide = wide.template data<float>();
    p.narrow = small.data();
    p.range = range.template data<float>();
    p.flags = flags.template data<kernels::u32>();
    p.row_sizes = sizes.template data<float>();
    if (mask) p.mask = {mask_bytes->template data<kernels::u8>(), shape[1], shape[1], 1};
  });
  EXPECT_TRUE(wide.guards_intact() && small.guards_intact() && sizes.guards_intact());
  LoadedRows result{wide.values(), small.values(), sizes.values()};
  const auto bytes = flags.download();
  std::memcpy(&result.flags, bytes.data(), sizeof result.flags);
  return result;
}

// Copies to the bit, sizes, and no flag.
inline void expect_rows_right(const TestTensor& host, DType narrow, const LoadedRows& got) {
  const std::vector<double> want = host.values();
  ASSERT_EQ(got.flags, 0u);
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got.wide[i], want[i]) << i;
    ASSERT_EQ(got.narrow[i], stored(want[i], narrow)) << i;
  }
  for (std::size_t r = 0; r < got.sizes.size(); ++r) {
    double squares = 0;
    const auto width = static_cast<std::size_t>(host.view().shape[2]);
    for (std::size_t i = 0; i < width; ++i) squares += want[r * width + i] * want[r * width + i];
    const double size = std::sqrt(squares / static_cast<double>(width));
    ASSERT_NEAR(got.sizes[r], size, 1e-6 * size);
  }
}

}  // namespace gnomon::test
