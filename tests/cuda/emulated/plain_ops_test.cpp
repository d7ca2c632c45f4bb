// The reference's passes on the emulator.
#include "emulated/plain_ops.cuh"

#include "cuda/emulated/on_emulator.hpp"
#include "cuda/plain_ops_cases.hpp"

namespace gnomon::test {
namespace {

constexpr int kThreads = 64;

// As cuda::PlainOps, with a grid that is too small for the work: kernels walk on in steps of it.
class Ops {
 public:
  explicit Ops(Rng& rng) : rng_(rng) {}

  template <typename Params>
  struct Run {
    void (*kernel)(Params);
    std::remove_const_t<Params> params;
    Rng& rng;
    void run(std::nullptr_t) const { emulator::emulate(kernel, {.blocks = 5, .threads = kThreads}, rng(), params); }
  };

  auto add(const float* a, const float* b, float* to, std::int64_t n) const {
    return launch(&kernels::plain_add<kThreads>, {.a = a, .b = b, .to = to, .n = n});
  }
  auto add_bias(const float* x, const float* bias, float* to, std::int64_t rows, std::int64_t width) const {
    return launch(&kernels::plain_add_bias<kThreads>,
                  {.a = x, .b = bias, .to = to, .n = rows * width, .width = static_cast<kernels::i32>(width)});
  }
  auto scale(const float* x, float factor, float* to, std::int64_t n) const {
    return launch(&kernels::plain_scale<kThreads>, {.a = x, .to = to, .n = n, .factor = factor});
  }
  auto norm(const kernels::PlainNorm& p) const { return launch(&kernels::plain_norm<kThreads>, p); }
  auto split_heads(const kernels::PlainHeads& p) const { return launch(&kernels::plain_split_heads<kThreads>, p); }
  auto merge_heads(const kernels::PlainHeads& p) const { return launch(&kernels::plain_merge_heads<kThreads>, p); }
  auto mask_causal(const kernels::PlainScores& p) const { return launch(&kernels::plain_mask_causal<kThreads>, p); }
  auto mask_keys(const kernels::PlainScores& p) const { return launch(&kernels::plain_mask_keys<kThreads>, p); }
  auto softmax(const kernels::PlainScores& p) const { return launch(&kernels::plain_softmax<kThreads>, p); }
  auto weigh(const kernels::PlainWeigh& p) const { return launch(&kernels::plain_weigh<kThreads>, p); }

 private:
  template <typename Params>
  Run<Params> launch(void (*kernel)(Params), const std::type_identity_t<Params>& params) const {
    return {kernel, params, rng_};
  }
  Rng& rng_;
};

class EmulatedPlainOps : public testing::Test {
 protected:
  Rng rng{test_seed()};
  Ops ops{rng};
};

TEST_F(EmulatedPlainOps, Elementwise) { expect_plain_elementwise_right<HostBytes>(ops, rng); }
TEST_F(EmulatedPlainOps, Norm) { expect_plain_norm_right<HostBytes>(ops, rng, {1, 7, 128, 1000}); }
TEST_F(EmulatedPlainOps, HeadsAreSplitAndMerged) { expect_plain_heads_right<HostBytes>(ops, rng); }
TEST_F(EmulatedPlainOps, FromScoresToOutput) { expect_plain_attention_right<HostBytes>(ops, rng); }

}  // namespace
}  // namespace gnomon::test
