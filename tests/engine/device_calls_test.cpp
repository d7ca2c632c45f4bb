// An engine on a CUDA device, through the plugin and the interface that the CPU's has. Skipped where there is no
// device.
#include <gtest/gtest.h>

#include <cstring>

#include "core/error.hpp"
#include "engine/device_plugin.hpp"
#include "engine/engine.hpp"
#include "support/oracle.hpp"
#include "support/tensors.hpp"

namespace gnomon::test {
namespace {

class DeviceCalls : public testing::Test {
 protected:
  void SetUp() override {
    try {
      if (cuda_plugin().devices().empty()) GTEST_SKIP() << "no CUDA device";
      memory_ = make_device_memory("cuda:0");
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  // Runs one call of contiguous fp32 tensors and judges it.
  void expect_right(Engine& engine, const Weights& weights, std::int64_t batch, std::int64_t seq, std::uint64_t seed) {
    const std::array<std::int64_t, 3> shape = {batch, seq, weights.config().d_model};
    TestTensor input(shape);
    Rng rng(seed);
    input.fill_normal(rng);
    const auto bytes = static_cast<std::size_t>(input.const_view().elements()) * sizeof(float);
    void* const from = memory_->allocate(bytes);
    void* const to = memory_->allocate(bytes);
    memory_->to_device(from, input.const_view().data, bytes);
    Call call;
    call.input = ConstTensorView::contiguous(from, DType::f32, shape);
    call.output = TensorView::contiguous(to, DType::f32, shape);
    engine.forward(call);
    std::vector<float> got(static_cast<std::size_t>(input.const_view().elements()));
    memory_->to_host(got.data(), to, bytes);
    memory_->free(from);
    memory_->free(to);
    const std::vector<double> expected = oracle(weights, input.const_view(), std::nullopt);
    const Verdict verdict = compare(ConstTensorView::contiguous(got.data(), DType::f32, shape),
                                    ConstTensorView::contiguous(expected.data(), DType::f64, shape), Contract{});
    EXPECT_LE(verdict.worst, 1) << seq << " tokens: " << verdict.out_of_contract << " out of contract";
  }

  std::unique_ptr<DeviceMemory> memory_;
};

// Plans and their graphs are capped, and scratch memory stays what the longest sequence needs.
TEST_F(DeviceCalls, ThreeHundredLengthsInARow) {
  const Weights weights = Weights::random(parse_stack_config("d48 h2 l1 f96"), 1);
  EngineOptions options;
  options.device = "cuda:0";
  options.effort = Effort::estimate;
  options.plan_directory = std::filesystem::path();
  options.max_plans = 8;
  Engine engine(weights, options);
  std::int64_t first = 0, largest = 0;
  for (std::int64_t seq = 300; seq >= 1; --seq) {
    expect_right(engine, weights, 2, seq, static_cast<std::uint64_t>(seq));
    largest = std::max(largest, engine.stats().scratch_bytes);
    if (seq == 300) first = largest;
  }
  EXPECT_GT(engine.stats().plans_evicted, 280);
  constexpr std::int64_t kWorkspace = std::int64_t{64}
                                      << 20;  // of the products' algorithms, other ones for each length
  EXPECT_LE(largest, first + kWorkspace);
}

}  // namespace
}  // namespace gnomon::test
