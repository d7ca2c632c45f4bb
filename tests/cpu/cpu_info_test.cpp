#include "cpu/cpu_info.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cpu/thread_pool.hpp"
#include "cpu/vector_test.hpp"

namespace gnomon::test {
namespace {

class CpuInfoTest : public VectorTest {};

TEST_F(CpuInfoTest, IsSane) {
  const cpu::CpuInfo& info = cpu::cpu_info();
  EXPECT_THAT(info.model, testing::HasSubstr("(family "));
  EXPECT_EQ(info.cores, cpu::available_cores());
  EXPECT_EQ(info.isa, cpu::vec_kernels().isa);
  EXPECT_FALSE(info.onednn_isa.empty());
  EXPECT_THAT(info.onednn_version, testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(info.highway_version, testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_GE(info.l1d_bytes, 0);
  EXPECT_GE(info.l2_bytes, info.l1d_bytes);
  EXPECT_TRUE(info.l3_bytes == 0 || info.l3_bytes >= info.l2_bytes);
  EXPECT_EQ(&info, &cpu::cpu_info()) << "read once";
}

}  // namespace
}  // namespace gnomon::test
