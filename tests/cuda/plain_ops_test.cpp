// The reference's passes on the device, each against its formula, and the attention that they make together.
#include "cuda/plain_ops.hpp"

#include "cuda/on_device.hpp"
#include "cuda/plain_ops_cases.hpp"

namespace gnomon::test {
namespace {

class PlainOpsKernel : public OnDevice {
 protected:
  static cuda::PlainOps ops() { return cuda::PlainOps(library()); }
};

TEST_F(PlainOpsKernel, Elementwise) {
  Rng rng(test_seed());
  expect_plain_elementwise_right<DeviceBytes>(ops(), rng);
}

TEST_F(PlainOpsKernel, Norm) {
  Rng rng(test_seed());
  expect_plain_norm_right<DeviceBytes>(ops(), rng, {1, 7, 128, 1000, 20'000});
}

TEST_F(PlainOpsKernel, HeadsAreSplitAndMerged) {
  Rng rng(test_seed());
  expect_plain_heads_right<DeviceBytes>(ops(), rng);
}

TEST_F(PlainOpsKernel, FromScoresToOutput) {
  Rng rng(test_seed());
  expect_plain_attention_right<DeviceBytes>(ops(), rng);
}

}  // namespace
}  // namespace gnomon::test
