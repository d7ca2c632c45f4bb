// On a device that is not there: what a call asks of the driver is answered at once, for as long as it is asked to be.
#include "cuda/idle_driver.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "cuda/absent_call.hpp"
#include "cuda/absent_device.hpp"
#include "cuda/compiler.hpp"
#include "cuda/cuda_backend.hpp"
#include "cuda/nvrtc.hpp"
#include "cuda/search_space.hpp"

namespace gnomon::cuda {
namespace {

class NothingCompiled final : public Compiler {
 public:
  NothingCompiled() : Compiler(std::filesystem::path()) {}
  std::shared_ptr<const CompiledKernel> get(const KernelSource&, const Architecture&) override {
    CompiledKernel kernel;
    kernel.image = "0";
    return std::make_shared<const CompiledKernel>(std::move(kernel));
  }
  void ahead(std::vector<KernelSource>, const Architecture&) override {}
};

// The driver in place, with its calls counted.
class CountingDriver {
 public:
  CountingDriver() : counting_(driver()) {
    calls = 0;
#define GNOMON_COUNT(name) counting_.name = Counted<&Driver::name, decltype(Driver::name)>::call;
    GNOMON_CUDA_DRIVER(GNOMON_COUNT)
#undef GNOMON_COUNT
    before = use_driver(&counting_);
  }
  ~CountingDriver() { use_driver(before); }
  CountingDriver(const CountingDriver&) = delete;
  CountingDriver& operator=(const CountingDriver&) = delete;
  static inline int calls = 0;

 private:
  template <auto kMember, typename Function>
  struct Counted;
  template <auto kMember, typename... Args>
  struct Counted<kMember, CUresult (*)(Args...)> {
    static CUresult call(Args... args) { return ++calls, (before->*kMember)(args...); }
  };
  static inline const Driver* before = nullptr;
  Driver counting_;
};

// What is left of a planned call under an IdleDriver is our own code: none of the driver's functions is called.
TEST(IdleDriver, APlannedCallReachesNoDriver) {
  try {
    nvrtc();  // a backend wants it
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const AbsentDevice absent(Architecture::parse("sm_90a"));
  Driver older = driver();
  older.cuGraphAddNode_v1 = nullptr;  // no conditional nodes: the host reads the guard's flag
  for (const bool conditions : {true, false}) {
    const Driver* const newer = conditions ? nullptr : use_driver(&older);
    for (const char* text : {"b20 s20 d64 h4 l2 f128", "b20 s20 d64 h4 l2 f128 mask inplace f16"}) {
      for (const char* changes : {"path=stack graph=on", "path=stack graph=on slices=8", "path=resident graph=on",
                                  "path=resident graph=off"}) {
        SCOPED_TRACE(std::string(text) + " " + changes + (conditions ? "" : ", no conditional nodes"));
        const Problem problem = parse_problem(text);
        const auto backend = make_cuda_backend(0, std::make_shared<const Weights>(Weights::random(problem.config, 1)),
                                               {}, std::make_shared<NothingCompiled>());
        const auto changed = Candidate::parse(changes);
        const Candidate base = changed.get("path") == "resident"
                                   ? backend->estimate(problem, {})
                                   : to_candidate(estimate_stack(problem, {}, device_properties(0)));
        const Candidate candidate = base.with(changed.choices());
        ASSERT_FALSE(backend->refuses(problem, {}, candidate));
        const auto plan = backend->prepare(problem, candidate);
        test::AbsentCall first(problem), second(problem);
        plan->run(first.call);  // writes the steps, and captures them
        const CountingDriver counting;
        plan->run(second.call);  // at other addresses
        EXPECT_GT(CountingDriver::calls, 5);
        CountingDriver::calls = 0;
        {
          const auto idle = backend->idle_device(candidate);
          ASSERT_TRUE(idle);
          for (test::AbsentCall* tensors : {&first, &second, &second}) plan->run(tensors->call);
          EXPECT_EQ(CountingDriver::calls, 0);
        }
        plan->run(first.call);
        EXPECT_GT(CountingDriver::calls, 5);
        EXPECT_EQ(backend->idle_device(candidate.with(Candidate::parse("path=stack graph=off").choices())), nullptr);
      }
    }
    if (newer) use_driver(newer);
  }
}

TEST(IdleDriver, TakesTheDriversPlaceForAsLongAsItLives) {
  const AbsentDevice absent(Architecture::parse("sm_90a"));
  const Device device(0);
  const Driver* const before = &driver();
  {
    const IdleDriver idle(device);
    EXPECT_NE(&driver(), before);
    int place = -1, nothing = 0;
    EXPECT_EQ(driver().cuPointerGetAttribute(&place, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 1), CUDA_SUCCESS);
    EXPECT_EQ(place, 0);
    EXPECT_NO_THROW(device.require(&nothing, "input"));
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    EXPECT_EQ(driver().cuStreamIsCapturing(nullptr, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(driver().cuGraphLaunch(nullptr, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuMemAlloc, before->cuMemAlloc);  // the rest is the driver's own
  }
  EXPECT_EQ(&driver(), before);
}

}  // namespace
}  // namespace gnomon::cuda
