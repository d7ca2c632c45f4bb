// What is compiled ahead of time is what a device asks for: the planner itself, on a device that is not there, asks for
// no kernel that was not foreseen. No device is needed.
#include "cuda/asked_kernels.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "core/expect_error.hpp"
#include "cuda/absent_call.hpp"
#include "cuda/absent_device.hpp"
#include "cuda/cuda_backend.hpp"
#include "cuda/device.hpp"
#include "cuda/nvrtc.hpp"
#include "cuda/precompile.hpp"
#include "plan/planner.hpp"
#include "support/temporary_directory.hpp"

namespace gnomon::cuda {
namespace {

// The names that the files of the kernels would have, of every kernel that a backend asks for.
class Keys final : public Compiler {
 public:
  Keys() : Compiler(std::filesystem::path()) {}
  std::shared_ptr<const CompiledKernel> get(const KernelSource& source, const Architecture& architecture) override {
    asked_[key(source, architecture)] = source.to_string();
    CompiledKernel kernel;
    kernel.image = "0";
    return std::make_shared<const CompiledKernel>(std::move(kernel));
  }
  void ahead(std::vector<KernelSource> sources, const Architecture& architecture) override {
    for (const KernelSource& source : sources) get(source, architecture);
  }
  const std::map<std::string, std::string>& asked() const { return asked_; }

 private:
  std::map<std::string, std::string> asked_;
};

class AskedKernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      nvrtc();  // its version is part of a kernel's name
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  static std::set<std::string> foreseen(const Architecture& architecture, const Problem& problem) {
    const AskedKernels asked = asked_kernels(architecture, std::span(&problem, 1));
    EXPECT_EQ(asked.missed, std::vector<std::string>());
    EXPECT_GE(asked.candidates, 9);  // without our attention: the reference path, and 2 x 2 x 2 of the stack
    std::set<std::string> keys;
    const Compiler compiler{std::filesystem::path()};
    for (const AskedKernel& kernel : asked.kernels) keys.insert(compiler.key(kernel.source, architecture));
    EXPECT_EQ(keys.size(), asked.kernels.size());
    return keys;
  }
  // A process's planning, its kernels from that compiler. Every time is noise there, so every run takes another way.
  static void plan(const Architecture& architecture, const Problem& problem, const Constraints& constraints,
                   const std::shared_ptr<Compiler>& compiler) {
    const AbsentDevice device(architecture);
    const auto weights = std::make_shared<const Weights>(Weights::random(problem.config, 1));
    const auto backend = make_cuda_backend(0, weights, constraints, compiler);
    const test::AbsentCall absent(problem);
    Planner(*backend, steady_clock()).plan(problem, absent.call, {.budget_seconds = 0.5, .constraints = constraints});
  }
};

TEST_F(AskedKernelsTest, ThePlannerAsksForNoOthers) {
  const Constraints any, exact{.exact_activation = true};
  for (const char* name : {"sm_89", "sm_90a", "compute_80"}) {
    const Architecture architecture = Architecture::parse(name);
    for (const char* text :
         {"b4 s100 d128 h4 l2 f512", "b3 s40 d96 h4 l2 f200 bi mask pre finalnorm f16",
          "b2 s700 d128 h1 l1 f512 inplace", "b2 s9 d512 h1 l1 f64 relu bf16 nobias", "b2 s30000 d256 h4 l1 f512"}) {
      SCOPED_TRACE(std::string(name) + ": " + text);
      const Problem problem = parse_problem(text);
      const std::set<std::string> keys = foreseen(architecture, problem);
      for (const Constraints* constraints : {&any, &exact}) {
        const auto asked = std::make_shared<Keys>();
        plan(architecture, problem, *constraints, asked);
        EXPECT_GT(asked->asked().size(), 10u);
        for (const auto& [key, source] : asked->asked()) EXPECT_TRUE(keys.contains(key)) << source;
      }
    }
  }
}

// Its head is too wide for our attention, whose kernels take longest to compile.
TEST_F(AskedKernelsTest, AProcessCompilesNothingAfterwards) {
  const test::TemporaryDirectory cache;
  const Problem problem = parse_problem("b1 s4 d512 h1 l1 f16");
  const KernelWish wish{.architectures = {"sm_90a"}, .problems = {problem}, .cache = cache.path(), .threads = 2};
  for (const bool again : {false, true}) {
    const KernelWishes made = precompile(wish);
    EXPECT_GT(made.kernels.size(), 10u);
    for (const KernelReport& kernel : made.kernels) {
      EXPECT_EQ(kernel.failed, "");
      EXPECT_EQ(kernel.from_cache, again) << kernel.name;
    }
  }
  const auto compiler = std::make_shared<Compiler>(cache.path());
  plan(Architecture::parse("sm_90a"), problem, {}, compiler);
  EXPECT_EQ(compiler->compilations(), 0);
}

TEST_F(AskedKernelsTest, ADeviceOfTheArchitectureAsksByTheSameNames) {
  const KernelSource source = {"norm.cuh", "gnomon::kernels::anything", {}};
  const Compiler compiler{std::filesystem::path()};
  const AbsentDevice absent(Architecture::parse("sm_90a"));
  const Device device(0);
  EXPECT_EQ(device.properties().name, "NVIDIA H200");
  EXPECT_EQ(device.architecture(), Architecture::of_device(9, 0));
  EXPECT_EQ(compiler.key(source, device.architecture()), compiler.key(source, Architecture::parse("sm_90a")));
  EXPECT_NE(compiler.key(source, device.architecture()), compiler.key(source, Architecture::parse("sm_80")));
}

TEST_F(AskedKernelsTest, HopperAsksForTheResidentStackAndOthersForItsPortableForm) {
  const Problem problem = parse_problem("b4 s100 d128 h4 l2 f512");
  for (const char* name : {"sm_80", "compute_80", "sm_90a"}) {
    const AskedKernels asked = asked_kernels(Architecture::parse(name), std::span(&problem, 1));
    const bool hopper = std::string(name) == "sm_90a";
    const auto asks = [&](const char* file) {
      return std::ranges::any_of(asked.kernels, [&](const AskedKernel& kernel) { return kernel.source.file == file; });
    };
    EXPECT_EQ(asks("resident.cuh"), hopper) << name;
    EXPECT_EQ(asks("resident_portable.cuh"), !hopper) << name;
  }
}

TEST(AbsentDeviceTest, OtherArchitecturesAreRefused) {
  for (const char* name : {"sm_90", "compute_90", "sm_99"})
    expect_error(ErrorKind::caller, std::string("architecture ") + name,
                 [&] { AbsentDevice(Architecture::parse(name)); });
  for (const std::string& name : AbsentDevice::known()) AbsentDevice(Architecture::parse(name));
}

}  // namespace
}  // namespace gnomon::cuda
