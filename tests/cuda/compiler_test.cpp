#include "cuda/compiler.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "core/expect_error.hpp"
#include "core/log.hpp"
#include "cuda/absent_device.hpp"
#include "cuda/kernel.hpp"
#include "cuda/nvrtc.hpp"
#include "cuda/resource_report.hpp"
#include "support/temporary_directory.hpp"

namespace gnomon::cuda {
namespace {

namespace fs = std::filesystem;

constexpr SourceFile kSources[] = {
    {"scale.cuh",
     "#include \"factor.cuh\"\ntemplate <int N> __global__ void scale(float* x) { x[threadIdx.x] *= N * factor; }\n"},
    {"factor.cuh", "constexpr float factor = 2;\n"},
    {"broken.cuh", "__global__ void broken(float* x) { x[0] = no_such_thing; }\n"},
    {"mma.cuh", R"(
__global__ void product(float* x, const unsigned* q) {
  float c[4] = {};
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%4,%4,%4},{%5,%5},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(q[0]), "r"(q[1]));
  x[threadIdx.x] = c[0] + c[1] + c[2] + c[3];
})"},
    {"stack.cuh", R"(
__global__ void stack(float* x, int n) {
  volatile float a[64];  // a variable index into it
  a[n] = x[0];
  x[1] = a[n + 1];
})"},
};

class CompilerTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      nvrtc();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  Compiler make() { return Compiler(directory_.path() / "kernels", kSources); }
  std::vector<fs::path> files() {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(directory_.path() / "kernels")) all.push_back(entry.path());
    return all;
  }

  test::TemporaryDirectory directory_;
  const Architecture hopper_ = Architecture::parse("sm_90a");
  const KernelSource scale_ = {"scale.cuh", "scale<3>", {}};
};

TEST_F(CompilerTest, ASecondRequestAndASecondProcessCompileNothing) {
  Compiler first = make();
  const auto kernel = first.get(scale_, hopper_);
  EXPECT_EQ(first.get(scale_, hopper_), kernel);
  EXPECT_EQ(first.compilations(), 1);
  ASSERT_EQ(files().size(), 1u);
  Compiler second = make();
  const auto again = second.get(scale_, hopper_);
  EXPECT_EQ(second.compilations(), 0);
  EXPECT_EQ(again->image, kernel->image);
  EXPECT_EQ(again->symbol, kernel->symbol);
  EXPECT_EQ(again->log, kernel->log);
}

TEST_F(CompilerTest, AnotherExpressionDefineArchitectureOrIncludedTextIsAnotherKernel) {
  Compiler compiler = make();
  compiler.get(scale_, hopper_);
  compiler.get({"scale.cuh", "scale<4>", {}}, hopper_);
  compiler.get({"scale.cuh", "scale<3>", {"UNUSED=1"}}, hopper_);
  compiler.get(scale_, Architecture::parse("sm_80"));
  EXPECT_EQ(compiler.compilations(), 4);
  const SourceFile changed[] = {kSources[0], {"factor.cuh", "constexpr float factor = 3;\n"}};
  Compiler other(directory_.path() / "kernels", changed);
  other.get(scale_, hopper_);
  EXPECT_EQ(other.compilations(), 1);
}

TEST_F(CompilerTest, ADamagedFileIsCompiledAnewAndReplaced) {
  make().get(scale_, hopper_);
  const fs::path file = files().at(0);
  std::vector<std::string> said;
  log::set_sink([&](log::Level, std::string_view text) { said.emplace_back(text); });
  for (const std::uintmax_t length : {std::uintmax_t{0}, std::uintmax_t{20}, fs::file_size(file) - 1}) {
    fs::resize_file(file, length);
    Compiler compiler = make();
    compiler.get(scale_, hopper_);
    EXPECT_EQ(compiler.compilations(), 1) << length;
    Compiler healed = make();
    healed.get(scale_, hopper_);
    EXPECT_EQ(healed.compilations(), 0) << length;
  }
  log::set_sink({});
  EXPECT_EQ(said.size(), 1u);  // one warning per file
}

TEST_F(CompilerTest, AnUnusableCacheIsNoError) {
  std::ofstream(directory_.path() / "file") << "in the way";
  log::set_sink([](log::Level, std::string_view) {});
  Compiler compiler(directory_.path() / "file", kSources);
  EXPECT_FALSE(compiler.get(scale_, hopper_)->image.empty());
  log::set_sink({});
}

TEST_F(CompilerTest, AnErrorHoldsTheCompilersLog) {
  expect_error(ErrorKind::internal, "no_such_thing", [&] { make().get({"broken.cuh", "broken", {}}, hopper_); });
  expect_error(ErrorKind::internal, "no kernel source named 'nothing.cuh'", [&] {
    make().get({"nothing.cuh", "nothing", {}}, hopper_);
  });
}

TEST_F(CompilerTest, WhatIsAskedForAheadIsThereForWhoAsks) {
  Compiler compiler = make();
  const auto scale = [](int n) { return KernelSource{"scale.cuh", "scale<" + std::to_string(n) + ">", {}}; };
  const KernelSource broken = {"broken.cuh", "broken", {}}, nothing = {"nothing.cuh", "nothing", {}};
  for (int round = 0; round < 3; ++round) {  // whoever helped in a round may have ended before the next
    compiler.ahead({scale(2 * round), broken, nothing, scale(2 * round + 1), scale(0)}, hopper_);
    for (const int n : {2 * round, 2 * round + 1}) EXPECT_FALSE(compiler.get(scale(n), hopper_)->image.empty());
    expect_error(ErrorKind::internal, "no_such_thing", [&] { compiler.get(broken, hopper_); });
    expect_error(ErrorKind::internal, "no kernel source named", [&] { compiler.get(nothing, hopper_); });
  }
  EXPECT_EQ(compiler.compilations(), 6);
}

TEST_F(CompilerTest, NobodyWaitsForWhatWasAskedForAheadInVain) {
  {
    Compiler compiler = make();
    std::vector<KernelSource> many;
    for (int n = 0; n < 2000; ++n) many.push_back({"scale.cuh", "scale<" + std::to_string(n) + ">", {}});
    compiler.ahead(many, hopper_);
    compiler.get(scale_, hopper_);
  }
  EXPECT_LT(files().size(), 1000u);
}

// Notes what is asked for.
class Asked final : public Compiler {
 public:
  Asked() : Compiler(std::filesystem::path()) {}
  std::shared_ptr<const CompiledKernel> get(const KernelSource& source, const Architecture&) override {
    got.push_back(source.expression);
    CompiledKernel kernel;
    kernel.image = "0";
    return std::make_shared<const CompiledKernel>(std::move(kernel));
  }
  void ahead(std::vector<KernelSource> sources, const Architecture&) override {
    for (const KernelSource& source : sources) begun.push_back(source.expression);
  }
  std::vector<std::string> got, begun;
};

TEST(KernelLibraryTest, AKernelIsBegunWhenSomebodyGetsItAndLoadedByItsFirstLaunch) {
  using Names = std::vector<std::string>;
  const AbsentDevice absent(Architecture::parse("sm_90a"));
  const Device device(0);
  const auto asked = std::make_shared<Asked>();
  KernelLibrary library(device, asked);
  const Kernel& first = library.get({"a.cuh", "first", {}}, 100 << 10);
  library.get({"a.cuh", "second", {}});
  EXPECT_EQ(&library.get({"a.cuh", "first", {}}), &first);
  EXPECT_EQ(asked->begun, (Names{"first", "second"}));
  EXPECT_EQ(asked->got, Names());
  const LaunchShape shape{.dynamic_shared_bytes = 100 << 10}, larger{.dynamic_shared_bytes = 101 << 10};
  for (int i = 0; i < 2; ++i) first.launch(nullptr, shape, 1);
  expect_error(ErrorKind::internal, "103424 bytes of shared memory, 102400 are allowed",
               [&] { first.launch(nullptr, larger, 1); });
  library.get({"a.cuh", "first", {}}, larger.dynamic_shared_bytes).launch(nullptr, larger, 1);
  EXPECT_EQ(asked->got, Names{"first"});
}

TEST_F(CompilerTest, TheReportSeesMatrixInstructionsAndTheStack) {
  Compiler compiler = make();
  for (const char* name : {"sm_80", "sm_90a", "sm_120"}) {
    const Architecture architecture = Architecture::parse(name);
    const ResourceReport product = report_on(*compiler.get({"mma.cuh", "product", {}}, architecture));
    EXPECT_EQ(product.mma, 1) << name;
    EXPECT_EQ(product.stack_bytes, 0) << name;
    EXPECT_GT(product.registers, 0) << name;
    const ResourceReport stack = report_on(*compiler.get({"stack.cuh", "stack", {}}, architecture));
    EXPECT_GE(stack.stack_bytes, 256) << name;
    EXPECT_EQ(stack.mma, 0) << name;
  }
}

TEST_F(CompilerTest, APortableArchitectureGivesPtx) {
  EXPECT_NE(make().get(scale_, Architecture::parse("compute_80"))->image.find(".target sm_80"), std::string::npos);
}

TEST(ArchitectureTest, AnotherThanTheDevicesOwnIsTakenWhereTheDeviceRunsIt) {
  EXPECT_EQ(architecture_for(9, 0, nullptr).name(), "sm_90a");
  EXPECT_EQ(architecture_for(9, 0, "").name(), "sm_90a");
  for (const char* name : {"compute_80", "compute_89", "sm_90a"}) EXPECT_EQ(architecture_for(9, 0, name).name(), name);
  EXPECT_EQ(architecture_for(8, 9, "sm_86").name(), "sm_86");
  EXPECT_EQ(architecture_for(12, 0, "compute_100").name(), "compute_100");
  for (const auto& [minor, name] :
       {std::pair(0, "sm_80"), {0, "sm_90"}, {0, "compute_90"}, {0, "compute_100"}, {0, "x"}})
    expect_error(ErrorKind::environment, std::string("GNOMON_CUDA_ARCH=") + name + ": ",
                 [&] { architecture_for(9, minor, name); });
  expect_error(ErrorKind::environment, "8.6 does not run it", [] { architecture_for(8, 6, "sm_89"); });
}

TEST(ArchitectureTest, NamesAreReadAndWritten) {
  for (const char* name : {"sm_80", "sm_89", "sm_90a", "sm_120", "compute_80"})
    EXPECT_EQ(Architecture::parse(name).name(), name);
  EXPECT_EQ(Architecture::of_device(9, 0).name(), "sm_90a");
  EXPECT_EQ(Architecture::of_device(8, 6).name(), "sm_86");
  for (const char* name : {"", "sm_", "90a", "sm_75", "sm_80b"})
    expect_error(ErrorKind::caller, "architecture", [&] { Architecture::parse(name); });
}

}  // namespace
}  // namespace gnomon::cuda
