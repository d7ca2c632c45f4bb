// classify_mask: every kind of mask, short and long sequences, any strides, again and again with one state.
#include "cuda/mask.hpp"

#include <fmt/format.h>

#include "cuda/mask_cases.hpp"
#include "cuda/on_device.hpp"
#include "cuda/rows.hpp"

namespace gnomon::test {
namespace {

class MaskKernel : public OnDevice {};

TEST_F(MaskKernel, SaysWhatTheMaskHolds) {
  Rng rng(test_seed());
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 1},   {3, 10},   {17, 31},  {9, 32},     {5, 33},
                                                          {8, 100}, {2, 4096}, {3, 5000}, {1, 70'001}, {300, 4}};
  for (const auto& [batch, seq] : shapes) {
    const DeviceBytes memory(cuda::ClassifiedMask::bytes(batch, seq));
    const auto placed = cuda::ClassifiedMask::place(memory.data(), batch, seq);
    cuda::check(cuda::driver().cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(placed.state), 0, 2, nullptr), "memset");
    auto launch = cuda::classify_mask(library(), batch, seq, placed);
    for (const MaskKind kind : kMaskKinds) {
      for (const bool strided : {false, true}) {
        SCOPED_TRACE(fmt::format("B={} S={} {} strided={}", batch, seq, name_of(kind), strided));
        const TestMask mask(batch, seq, kind, rng, strided);
        const auto& view = mask.view();
        const std::int64_t span = (batch - 1) * view.strides[0] + (seq - 1) * view.strides[1] + 1;
        DeviceBytes bytes(span);
        bytes.upload(view.data);
        launch.params.mask = cuda::mask_bytes(view);
        launch.params.mask.data = bytes.data<kernels::u8>();
        launch.run(nullptr);
        synchronize();
        ASSERT_TRUE(memory.guards_intact());
        const auto all = memory.download();
        const auto read = [&](const void* at, auto value) {
          std::memcpy(&value, all.data() + (static_cast<const char*>(at) - memory.data<char>()), sizeof value);
          return value;
        };
        expect_classified(
            mask, batch, seq, [&](std::int64_t b) { return read(placed.keys + b, kernels::SequenceKeys{}); },
            [&](std::int64_t b, std::int64_t word) {
              return read(placed.bitmap + b * cuda::ClassifiedMask::words(seq) + word, std::uint32_t{});
            },
            read(placed.kind, std::uint32_t{}));
        ASSERT_EQ(read(placed.state, std::uint32_t{}), 0u);
        ASSERT_EQ(read(placed.state + 1, std::uint32_t{}), 0u);
      }
    }
  }
}

}  // namespace
}  // namespace gnomon::test
