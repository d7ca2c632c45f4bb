// The activations on the emulator, narrow rows side by side and wide ones over several blocks.
#include "emulated/activation.cuh"

#include <fmt/format.h>

#include "cuda/activation_cases.hpp"
#include "cuda/emulated/on_emulator.hpp"

namespace gnomon::test {
namespace {

template <typename T, typename Function, int kVec>
void expect_right(Activation activation, std::int64_t width, bool with_bias, Rng& rng) {
  SCOPED_TRACE(fmt::format("activation {} {} width {} bias {}", static_cast<int>(activation),
                           gnomon::name_of(dtype_of<T>), width, with_bias));
  expect_activation_right(activation, dtype_of<T>, width, with_bias, rng, [&](const auto& x, const auto& bias) {
    const HostArray from(dtype_of<T>, x), to(dtype_of<T>, static_cast<std::int64_t>(x.size())), b(DType::f32, bias);
    const std::int64_t rows = static_cast<std::int64_t>(x.size()) / width, lanes = width / kVec;
    const std::int64_t rows_of_block =
        std::max<std::int64_t>(1, kernels::kActivateThreads / lanes) * kernels::kActivateRows;
    const std::int64_t column_blocks = (lanes + kernels::kActivateThreads - 1) / kernels::kActivateThreads;
    const kernels::Activate p{.from = from.data(),
                              .bias = with_bias ? b.data<float>() : nullptr,
                              .to = with_bias ? from.data() : to.data(),
                              .rows = rows,
                              .width = static_cast<kernels::i32>(width)};
    emulator::emulate(
        &kernels::activate<T, Function, kVec>,
        {.blocks = column_blocks * ((rows + rows_of_block - 1) / rows_of_block), .threads = kernels::kActivateThreads},
        rng(), p);
    EXPECT_TRUE(from.guards_intact() && to.guards_intact());
    return (with_bias ? from : to).values();
  });
}

TEST(EmulatedActivation, EveryFunctionAndEveryWayToDealRows) {
  Rng rng(test_seed());
  for (const bool with_bias : {false, true}) {
    expect_right<float, kernels::GeluErf, 1>(Activation::gelu_erf, 13, with_bias, rng);
    expect_right<kernels::f16, kernels::GeluErf, 8>(Activation::gelu_erf, 64, with_bias, rng);
    expect_right<kernels::bf16, kernels::GeluTanh, 2>(Activation::gelu_tanh, 22, with_bias, rng);
    expect_right<float, kernels::GeluTanh, 4>(Activation::gelu_tanh, 1200, with_bias, rng);
    expect_right<kernels::f16, kernels::Relu, 8>(Activation::relu, 512, with_bias, rng);
  }
}

}  // namespace
}  // namespace gnomon::test
