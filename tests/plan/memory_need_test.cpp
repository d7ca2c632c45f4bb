#include "plan/memory_need.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "core/weights.hpp"

namespace gnomon {
namespace {

TEST(MemoryNeed, TensorsOfACall) {
  EXPECT_EQ(tensor_bytes(parse_problem("b2 s10 d32 h4 l1 f64")), 2 * 2 * 10 * 32 * 4);
  EXPECT_EQ(tensor_bytes(parse_problem("b2 s10 d32 h4 l1 f64 inplace")), 2 * 10 * 32 * 4);
  EXPECT_EQ(tensor_bytes(parse_problem("b2 s10 d32 h4 l1 f64 f16 mask")), 2 * 2 * 10 * 32 * 2 + 2 * 10);
}

TEST(MemoryNeed, WeightsOfAStack) {
  for (const char* text : {"d32 h4 l3 f48 post", "d32 h4 l2 f48 pre finalnorm", "d16 h2 l1 f8 nobias"}) {
    const StackConfig config = parse_stack_config(text);
    const Weights weights = Weights::random(config, 1);
    std::int64_t elements = 0;
    for (const NamedTensor& tensor : weights.named())
      elements += std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
    EXPECT_EQ(weight_bytes(config, 4), 4 * elements) << text;
  }
}

TEST(MemoryNeed, TheLimitIsOfAllKindsTogether) {
  const MemoryNeed need{.tensors = 512 << 20, .weights = 100 << 20, .scratch = 200 << 20};
  EXPECT_FALSE(refuses_memory(need, {}));
  EXPECT_FALSE(refuses_memory(need, {.memory_limit = 812 << 20}));
  const auto refusal = refuses_memory(need, {.memory_limit = (812 << 20) - 1});
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason,
            "needs 812.0 MiB (tensors 512.0 MiB, weights 100.0 MiB, scratch 200.0 MiB), memory_limit is 812.0 MiB");
}

TEST(MemoryNeed, RoomForScratch) {
  const MemoryNeed need{.tensors = 50, .weights = 30, .scratch = 7};
  EXPECT_EQ(room_for_scratch(need, {}, 1000), 1000);
  EXPECT_EQ(room_for_scratch(need, {.memory_limit = 100}, 1000), 20);
  EXPECT_EQ(room_for_scratch(need, {.memory_limit = 100}, 10), 10);
  EXPECT_EQ(room_for_scratch(need, {.memory_limit = 60}, 1000), 0);
}

}  // namespace
}  // namespace gnomon
