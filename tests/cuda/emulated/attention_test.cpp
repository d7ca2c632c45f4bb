// Attention on the emulator: every form, all masks, odd head sizes, and what is not finite.
#include "emulated/attention.cuh"

#include "cuda/attention_cases.hpp"
#include "cuda/emulated/classified_mask.hpp"
#include "emulated/attention_fp32.cuh"

namespace gnomon::test {
namespace {

using kernels::bf16;
using kernels::f16;

struct Spec {
  DType dtype;
  std::int64_t batch, seq, heads, head_dim;
  bool causal, masked = false;
};

// The forms with their launches (src/cuda/attention.cpp). What a form is masked for and causal by is the problem's.
template <typename T, int kHead, int kWarps, int kParts, int kKeys>
struct Whole {
  using Element = T;
  static constexpr int kHeadDim = kHead, kThreads = kWarps * 32;
  template <bool kCausal, bool kMasked, int kCopy>
  static constexpr auto kernel = &kernels::attention_whole<T, kHead, kWarps, kParts, kKeys, kCausal, kMasked, kCopy>;
  static std::int64_t blocks(std::int64_t) { return kParts; }
  static int shared_bytes(std::int64_t seq) {
    return 3 * static_cast<int>((seq + 15) / 16 * 16) * kernels::kTileStride<kernels::round_up(kHead, 16)> * 2;
  }
};

template <typename T, int kHead, int kWarps, int kRowTiles, int kKeys>
struct Streamed {
  using Element = T;
  static constexpr int kHeadDim = kHead, kThreads = kWarps * 32, kRows = kWarps * kRowTiles * 16;
  template <bool kCausal, bool kMasked, int kCopy>
  static constexpr auto kernel =
      &kernels::attention_streamed<T, kHead, kWarps, kRowTiles, kKeys, kCausal, kMasked, kCopy>;
  static std::int64_t blocks(std::int64_t seq) { return (seq + kRows - 1) / kRows; }
  static int shared_bytes(std::int64_t) {
    return (kRows + 4 * kKeys) * kernels::kTileStride<kernels::round_up(kHead, 16)> * 2;
  }
};

template <int kHead, int kRows, int kKeys>
struct Fp32 {
  using Element = float;
  using L = kernels::Fp32Layout<kHead, kRows, kKeys>;
  static constexpr int kHeadDim = kHead, kThreads = L::kThreads;
  template <bool kCausal, bool kMasked, int>
  static constexpr auto kernel = &kernels::attention_fp32<kHead, kRows, kKeys, kCausal, kMasked>;
  static std::int64_t blocks(std::int64_t seq) { return (seq + kRows - 1) / kRows; }
  static int shared_bytes(std::int64_t) { return L::kBytes; }
};

// `over_queries`: the output takes the place of Q.
template <typename Form, bool kCausal, bool kMasked>
std::vector<double> run(const AttentionProblem<Spec>& problem, Rng& rng, bool over_queries = false) {
  constexpr int kHeadBytes = Form::kHeadDim * static_cast<int>(sizeof(typename Form::Element));
  constexpr int kCopy = kHeadBytes % 16 == 0 ? 16 : kHeadBytes % 8 == 0 ? 8 : kHeadBytes % 4 == 0 ? 4 : 2;
  const auto& s = problem.spec();
  const std::int64_t d = problem.width(), size = static_cast<std::int64_t>(size_of(s.dtype));
  const HostArray qkv(s.dtype, problem.qkv()), out(s.dtype, problem.tokens() * d);
  ClassifiedMask classified(s.batch, s.seq);
  if (kMasked) classified.classify(*problem.mask(), rng);
  const kernels::Attention p{
      .q = qkv.data(),
      .k = qkv.data<char>() + d * size,
      .v = qkv.data<char>() + 2 * d * size,
      .out = over_queries ? qkv.data() : out.data(),
      .q_row = 3 * d,
      .k_row = 3 * d,
      .v_row = 3 * d,
      .out_row = over_queries ? 3 * d : d,
      .batch = s.batch,
      .seq = s.seq,
      .heads = static_cast<kernels::i32>(s.heads),
      .scale = 1.44269504f / std::sqrt(static_cast<float>(s.head_dim)),
      .keys = kMasked ? classified.keys.data() : nullptr,
      .bitmap = kMasked ? classified.bitmap.data() : nullptr,
      .words = kMasked ? classified.words : 0,
  };
  emulator::emulate(Form::template kernel<kCausal, kMasked, kCopy>,
                    {.blocks = s.batch * s.heads * Form::blocks(s.seq),
                     .threads = Form::kThreads,
                     .dynamic_shared_bytes = Form::shared_bytes(s.seq)},
                    rng(), p);
  EXPECT_TRUE(out.guards_intact() && qkv.guards_intact());
  if (!over_queries) return out.values();
  const std::vector<double> rows = qkv.values();
  std::vector<double> values;
  for (auto row = rows.begin(); row != rows.end(); row += 3 * d) values.insert(values.end(), row, row + d);
  return values;
}

template <typename Form, bool kCausal>
Spec spec_of(std::int64_t batch, std::int64_t seq, std::int64_t heads) {
  return {dtype_of<typename Form::Element>, batch, seq, heads, Form::kHeadDim, kCausal};
}

template <typename Form, bool kCausal, bool kMasked>
void expect_right(std::int64_t batch, std::int64_t seq, std::int64_t heads, Rng& rng,
                  MaskKind mask = MaskKind::all_true) {
  const AttentionCase<Spec> c{spec_of<Form, kCausal>(batch, seq, heads), kMasked ? std::optional(mask) : std::nullopt};
  SCOPED_TRACE(to_string(c));
  const AttentionProblem<Spec> problem(c, rng);
  problem.expect_right(run<Form, kCausal, kMasked>(problem, rng));
}

class EmulatedAttention : public testing::Test {
 protected:
  Rng rng{test_seed()};
};

TEST_F(EmulatedAttention, WholeHeads) {
  for (const std::int64_t seq : {1, 17, 64, 100}) {
    expect_right<Whole<f16, 32, 4, 1, 64>, true, false>(2, seq, 2, rng);
    expect_right<Whole<f16, 32, 4, 1, 64>, false, false>(2, seq, 2, rng);
  }
  expect_right<Whole<bf16, 64, 4, 2, 64>, true, false>(1, 133, 2, rng);
  expect_right<Whole<f16, 32, 4, 1, 32>, true, false>(1, 100, 2, rng);
}

TEST_F(EmulatedAttention, StreamedTiles) {
  for (const std::int64_t seq : {1, 65, 150}) {
    expect_right<Streamed<f16, 64, 4, 2, 64>, true, false>(1, seq, 2, rng);
    expect_right<Streamed<f16, 64, 4, 1, 128>, false, false>(1, seq, 2, rng);
  }
  expect_right<Streamed<bf16, 128, 4, 2, 32>, true, false>(1, 150, 1, rng);
}

TEST_F(EmulatedAttention, Fp32) {
  for (const std::int64_t seq : {1, 64, 90}) {
    expect_right<Fp32<32, 64, 64>, true, false>(2, seq, 2, rng);
    expect_right<Fp32<20, 32, 16>, false, false>(1, seq, 2, rng);
  }
}

TEST_F(EmulatedAttention, EveryMask) {
  for (const MaskKind kind : kMaskKinds) {
    expect_right<Whole<f16, 32, 4, 1, 64>, true, true>(3, 70, 2, rng, kind);
    expect_right<Streamed<f16, 64, 4, 1, 64>, false, true>(2, 133, 1, rng, kind);
    expect_right<Fp32<32, 64, 64>, true, true>(2, 90, 1, rng, kind);
  }
}

TEST_F(EmulatedAttention, OddHeadSizes) {
  expect_right<Whole<f16, 5, 2, 1, 64>, true, true>(1, 40, 3, rng, MaskKind::holes);
  expect_right<Streamed<bf16, 20, 4, 1, 64>, true, true>(1, 70, 3, rng, MaskKind::left_padded);
  expect_right<Streamed<f16, 72, 4, 1, 32>, false, false>(1, 70, 1, rng);
  expect_right<Fp32<5, 64, 64>, true, false>(1, 70, 3, rng);
}

TEST_F(EmulatedAttention, TheOutputMayTakeThePlaceOfTheQueries) {
  const auto check = [&]<typename Form, bool kCausal, bool kMasked>(Form, std::int64_t seq) {
    const AttentionCase<Spec> c{spec_of<Form, kCausal>(2, seq, 2),
                                kMasked ? std::optional(MaskKind::holes) : std::nullopt};
    SCOPED_TRACE(to_string(c));
    const AttentionProblem<Spec> problem(c, rng);
    problem.expect_right(run<Form, kCausal, kMasked>(problem, rng, true));
  };
  check.template operator()<Whole<f16, 32, 4, 1, 64>, true, true>({}, 90);
  check.template operator()<Whole<bf16, 32, 4, 2, 64>, false, false>({}, 133);
  check.template operator()<Streamed<f16, 32, 4, 2, 64>, true, false>({}, 200);
  check.template operator()<Fp32<32, 64, 64>, true, true>({}, 150);
}

// What is not finite in one token reaches the rows that see it, and no other row.
TEST_F(EmulatedAttention, NotFiniteReachesThoseThatSeeIt) {
  const auto check = [&]<typename Form>(Form, std::int64_t seq) {
    for (const double value : {static_cast<double>(kNaN), static_cast<double>(kInf)}) {
      for (const std::int64_t column : {0, 64 + 3, 2 * 64 + 5, 2 * 64 + 5, 2 * 64 + 5}) {
        const auto token = static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(seq));
        SCOPED_TRACE(fmt::format("S {} {} in column {} of token {}", seq, value, column, token));
        AttentionProblem<Spec> problem({spec_of<Form, true>(2, seq, 2), {}}, rng);
        problem.at(token, column) = value;
        problem.expect_only_where_seen(run<Form, true, false>(problem, rng), value, token, column);
      }
    }
  };
  check(Whole<f16, 32, 4, 1, 64>{}, 90);
  check(Streamed<f16, 32, 4, 1, 64>{}, 100);
  check(Fp32<32, 64, 64>{}, 90);
}

}  // namespace
}  // namespace gnomon::test
