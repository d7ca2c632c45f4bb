// The stack with cuDNN's attention, on a device.
#include "cuda/backend_fixture.hpp"
#include "cuda/cudnn.hpp"

namespace gnomon::test {
namespace {

class StackWithCudnn : public CudaBackendTest {
 protected:
  void SetUp() override {
    CudaBackendTest::SetUp();
    if (!IsSkipped() && !cuda::cudnn_missing().empty()) GTEST_SKIP() << cuda::cudnn_missing();
  }
};

TEST_F(StackWithCudnn, MeetsTheContract) {
  for (const char* text :
       {"b4 s100 d128 h4 l3 f512", "b3 s41 d128 h4 l2 f512 bi", "b3 s33 d64 h4 l2 f128 pre finalnorm",
        "b5 s65 d256 h2 l2 f256 relu inplace", "b3 s20 d128 h2 l2 f512 f16", "b3 s20 d128 h4 l2 f512 bf16"}) {
    Posed posed(text, 21);
    for (const char* changes :
         {"graph=on", "graph=off", "graph=on slices=2", "graph=on fused_qkv=off gemm_gelu=off", "compact=on graph=on"})
      expect_right(posed, std::string("tile=cudnn precision=fp16 ") + changes,
                   posed.problem.dtype == DType::bf16 ? 4 : 1);
    // bf16 is eight times coarser than fp16, which the contract need not admit: the kernel is what is looked at.
    expect_right(posed, "tile=cudnn precision=bf16", 8);
  }
}

TEST_F(StackWithCudnn, NanStaysInItsSequence) {
  Posed posed("b3 s12 d64 h4 l2 f128", 9);
  set_value(posed.input.view(), 1, 3, 5, std::nan(""));
  posed.expected = oracle(*posed.weights, posed.input.const_view(), std::nullopt);
  expect_right(posed, "tile=cudnn precision=fp16");
}

TEST_F(StackWithCudnn, SharesAnEngineWithOtherThreads) {
  Posed posed("b6 s30 d128 h4 l2 f256", 17);
  expect_shared_by_threads(posed, "tile=cudnn precision=fp16");
}

}  // namespace
}  // namespace gnomon::test
