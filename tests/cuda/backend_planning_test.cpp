// Planning on a device: the planner's plan, the bench that judges, inputs outside the verified range, and memory over
// many lengths.
#include "cuda/backend_fixture.hpp"
#include "plan/planner.hpp"

namespace gnomon::test {
namespace {

TEST_F(CudaBackendTest, ThePlannerPlansAndItsPlanIsRight) {
  Posed posed("b8 s50 d128 h4 l2 f512 mask", 11, MaskKind::right_padded);
  const auto backend = backend_for(posed);
  OnCard card(posed);
  // Kernels are compiled within the budget, ten seconds of it where sixteen tests share the host.
  const PlanResult result = Planner(*backend, steady_clock()).plan(posed.problem, card.call(), {.budget_seconds = 60});
  EXPECT_FALSE(result.record.winner == backend->plain(posed.problem)) << result.record.winner.to_string();
  result.plan->run(card.call());
  EXPECT_LE(card.judge(posed).worst, 1);
}

TEST_F(CudaBackendTest, AnInputOutsideTheVerifiedRangeIsAnsweredInFp32) {
  for (const char* text : {"b4 s20 d64 h4 l2 f128", "b4 s20 d64 h4 l2 f128 inplace"}) {
    for (const char* changes : {"precision=fp16 graph=on slices=all", "precision=fp16 graph=off slices=1",
                                "path=resident graph=on", "path=resident graph=off"}) {
      SCOPED_TRACE(std::string(text) + " " + changes);
      Posed usual(text, 8);
      const auto backend = backend_for(usual);
      const auto plan = backend->prepare(usual.problem, with(usual, *backend, changes));
      OnCard card(usual);
      plan->set_verified_range(backend->open_workbench(usual.problem, card.call())->input_range());
      plan->run(card.call());
      EXPECT_LE(card.judge(usual).worst, 1);
      EXPECT_EQ(plan->range_fallbacks(), 0);
      for (const double scale : {10.0, 100.0, 3e4}) {
        Posed large(text, 8, MaskKind::holes, Layout::contiguous, Layout::contiguous, scale);
        OnCard large_card(large);
        const std::int64_t before = plan->range_fallbacks();
        plan->run(large_card.call());
        const Verdict verdict = large_card.judge(large);
        EXPECT_TRUE(verdict.fault.empty() && verdict.worst <= 1) << scale << ": " << describe(verdict);
        EXPECT_GT(plan->range_fallbacks(), before);
      }
    }
  }
}

// A plan that is wrong in a way that a bench must see.
class WrongPlan : public Plan {
 public:
  WrongPlan(Plan& right, std::int64_t rows_past) : right_(right), past_(rows_past) {}
  void run(const Call& call) override {
    right_.run(call);
    const auto row =
        static_cast<std::int64_t>(call.output.shape[2] * static_cast<std::int64_t>(size_of(call.output.dtype)));
    cuda::check(cuda::driver().cuMemsetD8Async(
                    reinterpret_cast<CUdeviceptr>(call.output.data) +
                        static_cast<CUdeviceptr>((call.output.shape[0] * call.output.shape[1] - 1 + past_) * row),
                    0, static_cast<std::size_t>(row), static_cast<CUstream>(call.stream)),
                "cuMemsetD8Async");
  }
  std::int64_t scratch_bytes() const override { return 0; }

 private:
  Plan& right_;
  std::int64_t past_;
};

TEST_F(CudaBackendTest, TheBenchSeesWrongRowsAndWritesOutside) {
  Posed posed("b2 s5 d64 h4 l1 f64", 14);
  const auto backend = backend_for(posed);
  const auto plan = backend->prepare(posed.problem, backend->plain(posed.problem));
  OnCard card(posed);
  const auto bench = backend->open_workbench(posed.problem, card.call());
  EXPECT_EQ(bench->check(*plan).worst, 0) << "the oracle is the plain path";
  WrongPlan last_row(*plan, 0), past_the_end(*plan, 1);
  EXPECT_GT(bench->check(last_row).out_of_contract, 32);
  EXPECT_EQ(bench->check(past_the_end).fault, "wrote outside the output");
}

// Plans die as others are made, and what they held comes back: kernels, which no length has of its own here, stay.
TEST_F(CudaBackendTest, MemoryStaysFlatOverManyLengths) {
  const Posed largest("b2 s300 d48 h2 l1 f96", 30);
  const auto backend = backend_for(largest);
  std::int64_t free_early = 0;
  for (std::int64_t seq = 300; seq >= 1; --seq) {
    Posed posed(fmt::format("b2 s{} d48 h2 l1 f96", seq), 30);
    const auto plan = backend->prepare(posed.problem, with(posed, *backend, "precision=fp16 graph=on"));
    OnCard card(posed);
    plan->run(card.call());
    synchronize();
    if (seq % 50 == 0) {
      const Verdict verdict = card.judge(posed);
      EXPECT_TRUE(verdict.fault.empty() && verdict.worst <= 1) << seq << ": " << describe(verdict);
    }
    if (seq == 270) free_early = device()->free_bytes();
  }
  backend->trim();
  constexpr std::int64_t kSlack = 64 << 20;  // the driver takes and gives in pieces of megabytes
  EXPECT_GE(device()->free_bytes(), free_early - kSlack);
}

TEST(CudaBackend, MissingDevicesAreOneLine) {
  try {
    cuda::driver();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
  const auto weights = std::make_shared<const Weights>(Weights::random(parse_stack_config("d8 h1 l1 f8"), 1));
  EXPECT_THROW(cuda::make_cuda_backend(1000, weights, {}), Error);
}

}  // namespace
}  // namespace gnomon::test
