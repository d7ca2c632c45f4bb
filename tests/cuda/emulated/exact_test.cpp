// The fp32 answer in one launch, on the emulator: right against the float64 oracle where the flag is up, nothing
// touched where it is down.
#include "emulated/exact.cuh"

#include "cuda/emulated/on_emulator.hpp"
#include "cuda/resident_problem.hpp"

namespace gnomon::test {
namespace {

using kernels::f16;

// All weights in a row, layer after layer, where -1 says that there is no such tensor.
class Laid {
 public:
  explicit Laid(const Weights& weights, kernels::ExactStack& p) {
    for (const LayerWeights& w : weights.layers()) {
      const auto layer = static_cast<std::int64_t>(values_.size());
      p.qkv = put({w.q_proj.weight, w.k_proj.weight, w.v_proj.weight}, layer);
      p.bias_qkv = put({w.q_proj.bias, w.k_proj.bias, w.v_proj.bias}, layer);
      p.out = put({w.out_proj.weight}, layer), p.bias_out = put({w.out_proj.bias}, layer);
      p.fc1 = put({w.fc1.weight}, layer), p.bias_fc1 = put({w.fc1.bias}, layer);
      p.fc2 = put({w.fc2.weight}, layer), p.bias_fc2 = put({w.fc2.bias}, layer);
      p.norm1 = put({w.norm1.weight}, layer), p.shift1 = put({w.norm1.bias}, layer);
      p.norm2 = put({w.norm2.weight}, layer), p.shift2 = put({w.norm2.bias}, layer);
      p.layer_stride = static_cast<std::int64_t>(values_.size()) - layer;
    }
    p.weights = values_.data();
    if (const NormWeights* last = weights.final_norm()) {
      p.final_gain = last->weight.data();
      p.final_shift = last->bias.empty() ? nullptr : last->bias.data();
    }
  }

 private:
  kernels::i32 put(std::initializer_list<std::span<const float>> parts, std::int64_t layer) {
    const auto at = static_cast<std::int64_t>(values_.size()) - layer;
    if (parts.begin()->empty()) return -1;
    for (const std::span<const float> part : parts) values_.insert(values_.end(), part.begin(), part.end());
    return static_cast<kernels::i32>(at);
  }
  std::vector<float> values_;
};

struct Result {
  TestTensor output;
  kernels::u32 flags, ended, answered;
};

template <typename T, typename Function>
Result run(const ResidentProblem& problem, Layout layout, int blocks, kernels::u32 raised, bool inplace) {
  const StackConfig& c = problem.problem.config;
  const auto& [batch, seq, width] = problem.shape;
  Result result{TestTensor(problem.shape, dtype_of<T>, layout), raised, 0, 4};
  result.output.fill(NAN);
  TestTensor input(problem.shape, dtype_of<T>, layout);
  TestTensor& read = inplace ? result.output : input;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t s = 0; s < seq; ++s) {
      for (std::int64_t i = 0; i < width; ++i)
        set_value(read.view(), b, s, i, value_at(problem.input.const_view(), b, s, i));
    }
  }
  kernels::ExactStack p{};
  const Laid laid(*problem.weights, p);
  const std::int64_t floats = seq * (2 * width + std::max(3 * width, c.d_ff));
  std::vector<float> scratch(static_cast<std::size_t>(blocks * floats), NAN);
  const auto strides = [&](const auto& view) {
    return kernels::RowStrides{view.shape[1], view.strides[0], view.strides[1], view.strides[2]};
  };
  p.input = read.view().data;
  p.output = result.output.view().data;
  p.input_strides = strides(read.view());
  p.output_strides = strides(result.output.view());
  p.mask = {problem.mask.empty() ? nullptr : problem.mask.data(), seq, seq, 1};
  p.batch = batch;
  p.layers = static_cast<int>(c.layers), p.seq = static_cast<int>(seq), p.width = static_cast<int>(width);
  p.heads = static_cast<int>(c.n_heads), p.hidden = static_cast<int>(c.d_ff);
  p.causal = c.causal, p.pre_norm = c.norm == NormPlacement::pre;
  p.eps = static_cast<float>(c.eps);
  p.scratch = scratch.data(), p.scratch_block = floats;
  p.flags = &result.flags, p.ended = &result.ended, p.answered = &result.answered;
  emulator::emulate(&kernels::exact_stack<T, Function>,
                    {.blocks = blocks,
                     .threads = kernels::kExactThreads,
                     .dynamic_shared_bytes = static_cast<int>(kernels::kExactWarps * seq * 4)},
                    test_seed(), p);
  return result;
}

template <typename T, typename Function>
void expect_exact(const std::string& text, MaskKind kind, Layout layout, int blocks, double worst,
                  bool inplace = false) {
  SCOPED_TRACE(text);
  const ResidentProblem problem(parse_problem(text), kind, 7);
  const Result up = run<T, Function>(problem, layout, blocks, kernels::kOutsideRange, inplace);
  EXPECT_EQ(up.flags, 0u);
  EXPECT_EQ(up.ended, 0u);
  EXPECT_EQ(up.answered, 5u);
  EXPECT_EQ(up.output.outside(), TestTensor(problem.shape, dtype_of<T>, layout).outside());
  const std::vector<double> got = up.output.values();
  const Verdict verdict = compare(ConstTensorView::contiguous(got.data(), DType::f64, problem.shape),
                                  ConstTensorView::contiguous(problem.expected.data(), DType::f64, problem.shape), {});
  EXPECT_LE(verdict.worst, worst) << verdict.first_bad;
}

TEST(EmulatedExact, StacksOfEveryKind) {
  using kernels::GeluErf, kernels::GeluTanh, kernels::Relu;
  expect_exact<float, GeluErf>("b3 s10 d64 h4 l2 f128", MaskKind::holes, Layout::contiguous, 2, 0.05);
  expect_exact<float, GeluErf>("b2 s17 d64 h4 l2 f96 bi mask", MaskKind::holes, Layout::column_slice, 2, 0.05);
  expect_exact<float, GeluTanh>("b2 s9 d32 h2 l2 f64 gelu_tanh pre finalnorm mask", MaskKind::left_padded,
                                Layout::contiguous, 1, 0.05);
  expect_exact<float, Relu>("b1 s70 d48 h3 l1 f13 relu nobias bi", MaskKind::holes, Layout::contiguous, 1, 0.05, true);
  expect_exact<f16, GeluErf>("b2 s7 d16 h1 l3 f80 mask f16", MaskKind::one_empty, Layout::every_other_column, 2, 1,
                             true);
}

TEST(EmulatedExact, NothingIsTouchedWhereTheFlagIsDown) {
  const ResidentProblem problem(parse_problem("b3 s10 d32 h2 l1 f32"), MaskKind::all_true, 3);
  const Result down = run<float, kernels::GeluErf>(problem, Layout::contiguous, 2, 0, false);
  EXPECT_EQ(down.answered, 4u);
  for (const double value : down.output.values()) ASSERT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace gnomon::test
