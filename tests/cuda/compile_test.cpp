// Compiles every kernel for every architecture of the table, with no device, and reads what the assembler made of it.
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "cuda/kernel_table.hpp"
#include "cuda/nvrtc.hpp"
#include "cuda/portable_kernels.hpp"
#include "cuda/resident_kernels.hpp"
#include "cuda/resource_report.hpp"

namespace gnomon::cuda {
namespace {

struct Row {
  KernelCase kernel;
  std::string architecture;
};

std::vector<Row> rows() {
  std::vector<Row> all;
  for (const KernelCase& kernel : kernel_table()) {
    for (const std::string& architecture : kernel.architectures) all.push_back({kernel, architecture});
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<Row>& info) {
  std::string name = info.param.architecture + "_" + info.param.kernel.source.to_string();
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name + "_" + std::to_string(info.index);
}

class Compile : public testing::TestWithParam<Row> {};

TEST_P(Compile, UsesNoLocalMemoryAndTheInstructionsMeant) {
  const Row& row = GetParam();
  try {
    nvrtc();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const Architecture architecture = Architecture::parse(row.architecture);
  if (architecture.major * 10 + architecture.minor > nvrtc().newest_arch)
    GTEST_SKIP() << "NVRTC " << nvrtc().version_text << " does not know " << row.architecture;
  Compiler compiler;
  const auto compiled = compiler.get(row.kernel.source, architecture);
  const ResourceReport report = report_on(*compiled);
  RecordProperty("resources", report.to_string());
  SCOPED_TRACE(row.kernel.source.to_string() + " for " + row.architecture + ": " + report.to_string());
  EXPECT_EQ(report.spill_store_bytes, 0);
  EXPECT_EQ(report.spill_load_bytes, 0);
  EXPECT_EQ(report.stack_bytes, 0);
  EXPECT_FALSE(report.wgmma_serialized);
  EXPECT_EQ(report.warnings, std::vector<std::string>());
  if (row.kernel.mma) {
    EXPECT_GT(report.mma, 0);
  }
  if (row.kernel.wgmma) {
    EXPECT_GT(report.wgmma, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Compile, testing::ValuesIn(rows()), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Compile);

}  // namespace
}  // namespace gnomon::cuda
