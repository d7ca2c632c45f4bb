// Batches and lengths at the limits of launches, up to 300,000 sequences and 2^20 tokens.
#include "cuda/backend_fixture.hpp"

namespace gnomon::test {
namespace {

constexpr double kAbs = 0.002, kRel = 0.02;

// Sequences that repeat after 257 of them, so that few true answers tell what is right for any batch.
class Repeated {
 public:
  explicit Repeated(const std::string& words) : words_(words), few_("b257 " + words, 50) {}

  Posed& few() { return few_; }
  void expect_right(Backend& backend, const Candidate& candidate, std::int64_t batch) {
    const Problem problem = parse_problem(fmt::format("b{} {}", batch, words_));
    SCOPED_TRACE(to_string(problem) + " with " + candidate.to_string());
    if (const auto refusal = backend.refuses(problem, {}, candidate)) {
      ADD_FAILURE() << "refused: " << refusal->reason;
      return;
    }
    const std::int64_t elements = problem.elements();
    const std::vector<float> values = repeated(elements);
    const std::array<std::int64_t, 3> shape = {problem.batch, problem.seq, problem.config.d_model};
    DeviceBytes input(elements * 4), output(elements * 4);
    input.upload(values.data());
    Call call;
    call.input = ConstTensorView::contiguous(input.data(), DType::f32, shape);
    call.output = TensorView::contiguous(output.data(), DType::f32, shape);
    const auto plan = backend.prepare(problem, candidate);
    plan->run(call);
    EXPECT_EQ(out_of_contract(output, elements), 0);
    EXPECT_TRUE(output.guards_intact());
  }

 private:
  std::vector<float> repeated(std::int64_t elements) {
    const ConstTensorView from = few_.input.const_view();
    const auto n = static_cast<std::int64_t>(few_.expected.size());
    std::vector<float> values(static_cast<std::size_t>(elements));
    for (std::int64_t i = 0; i < elements; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<const float*>(from.data)[i % n];
    return values;
  }
  std::int64_t out_of_contract(const DeviceBytes& output, std::int64_t elements) const {
    const std::vector<unsigned char> bytes = output.download();
    std::int64_t out = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      float u = 0;
      std::memcpy(&u, bytes.data() + i * 4, sizeof u);
      const double r = few_.expected[static_cast<std::size_t>(i) % few_.expected.size()], error = std::fabs(u - r);
      out += !(error <= kAbs || error <= kRel * std::fabs(r));
    }
    return out;
  }

  std::string words_;
  Posed few_;
};

TEST_F(CudaBackendTest, BatchesAtTheLimitsOfLaunches) {
  Repeated sequences("s4 d64 h4 l1 f64");
  const auto backend = backend_for(sequences.few());
  for (const std::int64_t batch : {65535, 65536, 65537, 300000}) {
    for (const char* changes :
         {kPlain, kFormula, "precision=fp16 graph=on", "precision=fp16 graph=off", "precision=fp32", "path=resident"})
      sequences.expect_right(*backend, with(sequences.few(), *backend, changes), batch);
  }
}

TEST_F(CudaBackendTest, ShortSequencesInBatchesOfAllSizes) {
  for (const char* words : {"s1 d64 h4 l1 f64", "s2 d64 h4 l1 f64", "s3 d64 h4 l1 f64 bi"}) {
    Repeated sequences(words);
    const auto backend = backend_for(sequences.few());
    for (const std::int64_t batch : {1, 7, 65536}) {
      for (const char* changes : {kPlain, "precision=fp16", "precision=fp32"})
        sequences.expect_right(*backend, with(sequences.few(), *backend, changes), batch);
    }
  }
}

// 2^20 tokens of one head: the first ones have a true answer, of all others two precisions must agree. The reference
// path, whose scores are terabytes, is refused and says so.
TEST_F(CudaBackendTest, AMillionTokensOfOneSequence) {
  constexpr std::int64_t kSeq = 1 << 20, kPrefix = 300, kWidth = 16;
  Posed prefix(fmt::format("b1 s{} d{} h1 l1 f64", kPrefix, kWidth), 51);
  const auto backend = backend_for(prefix);
  const Problem problem = parse_problem(fmt::format("b1 s{} d{} h1 l1 f64", kSeq, kWidth));
  const auto refusal = backend->refuses(problem, {}, backend->plain(problem));
  ASSERT_TRUE(refusal) << "the reference path fits";
  EXPECT_NE(refusal->reason.find("the device has"), std::string::npos) << refusal->reason;

  Rng rng(52);
  const ConstTensorView known = prefix.input.const_view();
  std::vector<double> values = normal_values(kSeq * kWidth, DType::f32, rng);
  for (std::int64_t i = 0; i < kPrefix * kWidth; ++i)
    values[static_cast<std::size_t>(i)] = static_cast<const float*>(known.data)[i];
  const DeviceArray input(DType::f32, values);
  std::vector<std::vector<double>> answers;
  for (const char* changes : {"precision=fp32", "precision=fp16"}) {
    SCOPED_TRACE(changes);
    const Candidate candidate =
        to_candidate(cuda::estimate_stack(problem, {}, properties())).with(Candidate::parse(changes).choices());
    const auto no = backend->refuses(problem, {}, candidate);
    ASSERT_FALSE(no) << no->reason;
    const DeviceArray output(DType::f32, kSeq * kWidth);
    Call call;
    call.input = ConstTensorView::contiguous(input.data(), DType::f32, {1, kSeq, kWidth});
    call.output = TensorView::contiguous(output.data(), DType::f32, {1, kSeq, kWidth});
    backend->prepare(problem, candidate)->run(call);
    answers.push_back(output.values());
    EXPECT_TRUE(output.guards_intact());
    const std::array<std::int64_t, 3> shape = {1, kPrefix, kWidth};
    const Verdict verdict =
        compare(ConstTensorView::contiguous(answers.back().data(), DType::f64, shape),
                ConstTensorView::contiguous(prefix.expected.data(), DType::f64, shape), problem.contract);
    EXPECT_LE(verdict.worst, 1) << describe(verdict);
  }
  const Verdict agreement =
      compare(ConstTensorView::contiguous(answers[1].data(), DType::f64, {1, kSeq, kWidth}),
              ConstTensorView::contiguous(answers[0].data(), DType::f64, {1, kSeq, kWidth}), problem.contract);
  EXPECT_LE(agreement.worst, 1) << describe(agreement);
}

TEST_F(CudaBackendTest, HugeBatchesAndOneToken) {
  for (const char* text : {"b65537 s4 d16 h2 l1 f16", "b7 s1 d64 h4 l1 f64", "b66000 s1 d16 h1 l1 f16"}) {
    Posed posed(text, 12);
    expect_right(posed, kPlain, 0.1);
    expect_right(posed, "precision=fp16");
  }
}

}  // namespace
}  // namespace gnomon::test
