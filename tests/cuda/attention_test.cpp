// Flash attention on the device, every tile that a problem admits.
#include "cuda/attention.hpp"

#include <fmt/format.h>

#include <functional>

#include "cuda/attention_cases.hpp"
#include "cuda/cudnn_session.hpp"
#include "cuda/on_device.hpp"
#include "cuda/rows.hpp"

namespace gnomon::test {
namespace {

using cuda::AttentionSpec;
using cuda::AttentionTile;

using Case = AttentionCase<AttentionSpec>;

// The problem's tensors and its classified mask, in device memory.
class Heads : public AttentionProblem<AttentionSpec> {
 public:
  Heads(cuda::KernelLibrary& library, const Case& c, Rng& rng)
      : AttentionProblem<AttentionSpec>(c, rng), library_(library) {}

  // Twice, into the same output.
  std::vector<double> run_twice(const std::function<void(const DeviceArray& qkv, const DeviceArray& out)>& run) {
    const DeviceArray on_device(spec().dtype, qkv()), out(spec().dtype, tokens() * width());
    run(on_device, out);
    const auto bytes_once = out.download();
    EXPECT_TRUE(out.guards_intact() && on_device.guards_intact());
    run(on_device, out);
    EXPECT_TRUE(out.download() == bytes_once) << "two runs differ";
    return out.values();
  }

  std::vector<double> run(const AttentionTile& tile) {
    const auto& [dtype, batch, seq, heads, head_dim, causal, masked, alignment] = spec();
    const DeviceBytes memory(cuda::ClassifiedMask::bytes(batch, seq));
    const auto classified = cuda::ClassifiedMask::place(memory.data(), batch, seq);
    std::unique_ptr<DeviceBytes> bytes;
    if (mask()) {
      bytes = std::make_unique<DeviceBytes>(tokens());
      bytes->upload(mask()->view().data);
      cuda::check(cuda::driver().cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(classified.state), 0, 2, nullptr),
                  "set");
      auto classify = cuda::classify_mask(library_, batch, seq, classified);
      classify.params.mask = cuda::mask_bytes(mask()->view());
      classify.params.mask.data = bytes->data<kernels::u8>();
      classify.run(nullptr);
    }
    auto launch = cuda::attention(library_, spec(), tile, &classified);
    const std::int64_t size = static_cast<std::int64_t>(size_of(dtype));
    return run_twice([&](const DeviceArray& qkv, const DeviceArray& out) {
      launch.params.q = qkv.data();
      launch.params.k = qkv.data<char>() + width() * size;
      launch.params.v = qkv.data<char>() + 2 * width() * size;
      launch.params.out = out.data();
      launch.run(nullptr);
    });
  }

  std::vector<double> run(cuda::DnnSession& session) {
    const auto attention = session.attention(spec());
    const DeviceBytes workspace(static_cast<std::int64_t>(attention->workspace_bytes()) + 16);
    const auto got = run_twice([&](const DeviceArray& qkv, const DeviceArray& out) {
      session.run(nullptr, *attention, attention->arguments(qkv.data(), out.data(), workspace.data()));
    });
    EXPECT_TRUE(workspace.guards_intact());
    return got;
  }

 private:
  cuda::KernelLibrary& library_;
};

class AttentionKernel : public OnDevice {
 protected:
  static void expect_right(const Case& c, Rng& rng, std::size_t most_tiles = 100) {
    SCOPED_TRACE(to_string(c));
    Heads heads(library(), c, rng);
    const auto tiles = cuda::attention_tiles(heads.spec(), properties());
    ASSERT_FALSE(tiles.empty());
    for (std::size_t i = 0; i < std::min(most_tiles, tiles.size()); ++i) {
      SCOPED_TRACE(tiles[i].to_string());
      heads.expect_right(heads.run(tiles[i]));
      if (HasFailure()) return;
    }
  }
};

AttentionSpec spec(DType dtype, std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t head_dim, bool causal) {
  return {.dtype = dtype, .batch = b, .seq = s, .heads = h, .head_dim = head_dim, .causal = causal};
}

TEST_F(AttentionKernel, TheSuitesShortShapesInEveryTile) {
  Rng rng(test_seed());
  for (const bool causal : {true, false}) expect_right({spec(DType::f16, 2, 100, 4, 32, causal), {}}, rng);
}

TEST_F(AttentionKernel, WiderHeadsInEveryTile) {
  Rng rng(test_seed());
  expect_right({spec(DType::f16, 2, 100, 2, 64, true), {}}, rng);
  expect_right({spec(DType::f16, 1, 300, 2, 128, true), {}}, rng);
}

TEST_F(AttentionKernel, BFloat16) {
  Rng rng(test_seed());
  for (const bool causal : {true, false}) expect_right({spec(DType::bf16, 2, 133, 2, 64, causal), {}}, rng, 2);
}

class AttentionLength : public AttentionKernel, public testing::WithParamInterface<std::int64_t> {};
TEST_P(AttentionLength, AnyLength) {
  Rng rng(test_seed());
  for (const bool causal : {true, false}) {
    expect_right({spec(DType::f16, 3, GetParam(), 2, 32, causal), {}}, rng);
    expect_right({spec(DType::f32, 3, GetParam(), 2, 32, causal), {}}, rng);
  }
}
INSTANTIATE_TEST_SUITE_P(Lengths, AttentionLength,
                         testing::Values(1, 2, 3, 15, 16, 17, 31, 63, 64, 65, 112, 127, 128, 129, 200, 257));

class AttentionHead : public AttentionKernel, public testing::WithParamInterface<std::int64_t> {};
TEST_P(AttentionHead, AnyHeadSize) {
  Rng rng(test_seed());
  expect_right({spec(DType::f16, 2, 70, 3, GetParam(), true), {}}, rng, 2);
  expect_right({spec(DType::f16, 1, 150, 3, GetParam(), false), MaskKind::holes}, rng, 1);
  expect_right({spec(DType::f32, 1, 150, 2, GetParam(), true), MaskKind::left_padded}, rng);
}
INSTANTIATE_TEST_SUITE_P(Heads, AttentionHead,
                         testing::Values(1, 4, 5, 7, 8, 13, 16, 20, 26, 48, 72, 80, 96, 100, 160, 192, 256));

class AttentionMask : public AttentionKernel, public testing::WithParamInterface<MaskKind> {};
TEST_P(AttentionMask, HidesWhatItMust) {
  Rng rng(test_seed());
  for (const bool causal : {true, false}) {
    expect_right({spec(DType::f16, 4, 100, 2, 32, causal), GetParam()}, rng);
    expect_right({spec(DType::bf16, 3, 333, 1, 64, causal), GetParam()}, rng, 3);
    expect_right({spec(DType::f32, 3, 150, 2, 64, causal), GetParam()}, rng);
  }
}
INSTANTIATE_TEST_SUITE_P(Masks, AttentionMask, testing::ValuesIn(kMaskKinds));

TEST_F(AttentionKernel, LongSequences) {
  Rng rng(test_seed());
  expect_right({spec(DType::f16, 1, 3000, 1, 64, true), {}}, rng);
  expect_right({spec(DType::f16, 1, 5000, 1, 32, false), MaskKind::holes}, rng, 2);
}

TEST_F(AttentionKernel, AMillionTokens) {
  Rng rng(test_seed());
  const std::int64_t seq = std::int64_t{1} << 20;
  const Case c{spec(DType::f16, 1, seq, 1, 16, true), {}};
  Heads heads(library(), c, rng);
  const auto got = heads.run(cuda::attention_tiles(heads.spec(), properties()).front());
  for (const std::int64_t q : {std::int64_t{0}, std::int64_t{1}, seq / 2, seq - 1}) {
    const auto want = heads.formula(0, 0, q);
    for (std::size_t f = 0; f < want.size(); ++f) {
      ASSERT_NEAR(got[static_cast<std::size_t>(q) * 16 + f], want[f], unit_of(DType::f16, 4) / 2) << q << " " << f;
    }
  }
}

TEST_F(AttentionKernel, ManySequencesOfFewTokens) {
  Rng rng(test_seed());
  for (const std::int64_t batch : {65'535, 65'537, 300'000})
    expect_right({spec(DType::f16, batch, 4, 4, 16, true), {}}, rng, 1);
}

TEST_F(AttentionKernel, SharpAndFlatSoftmax) {
  Rng rng(test_seed());
  for (const double scale : {0.01, 4.0, 20.0}) expect_right({spec(DType::f16, 1, 128, 2, 64, true), {}, scale}, rng, 2);
}

TEST_F(AttentionKernel, AnAllTrueMaskGivesTheBitsOfNoMask) {
  const Case with{spec(DType::f16, 2, 150, 2, 32, true), MaskKind::all_true}, without{with.spec, {}};
  Rng a(7), b(7);
  Heads masked(library(), with, a), plain(library(), without, b);
  for (const AttentionTile& tile : cuda::attention_tiles(plain.spec(), properties())) {
    EXPECT_EQ(masked.run(tile), plain.run(tile)) << tile.to_string();
  }
}

// What is not finite in one token reaches the rows that see it, and no other row.
TEST_F(AttentionKernel, NotFiniteReachesThoseThatSeeIt) {
  Rng rng(test_seed());
  for (const bool causal : {true, false}) {
    for (const std::int64_t seq : {90, 200, 201}) {
      const Case c{spec(seq == 201 ? DType::f32 : DType::f16, 2, seq, 2, 32, causal), {}};
      for (const double value : {static_cast<double>(kNaN), static_cast<double>(kInf), -static_cast<double>(kInf)}) {
        for (const std::int64_t column : {0, 64 + 3, 2 * 64 + 5}) {  // of head 0's Q, K, V
          for (const std::int64_t token : {std::int64_t{0}, std::int64_t{37}, seq - 1}) {
            SCOPED_TRACE(fmt::format("causal {} S {} {} in column {} of token {}", causal, seq, value, column, token));
            Heads heads(library(), c, rng);
            heads.at(token, column) = value;
            for (const AttentionTile& tile : cuda::attention_tiles(heads.spec(), properties())) {
              SCOPED_TRACE(tile.to_string());
              heads.expect_only_where_seen(heads.run(tile), value, token, column);
            }
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(AttentionKernel, RandomProblems) {
  const std::uint64_t seed = test_seed();
  for (int i = 0; i < test_count(12); ++i) {
    Rng rng(seed + static_cast<std::uint64_t>(i));
    SCOPED_TRACE(fmt::format("seed {}", seed + static_cast<std::uint64_t>(i)));
    const auto pick = [&](std::int64_t most) {
      return 1 + static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(most));
    };
    Case c{spec(std::array{DType::f16, DType::bf16, DType::f32}[rng() % 3], pick(4), pick(rng() % 4 ? 150 : 900),
                pick(4), pick(rng() % 4 ? 80 : 256), rng() % 2 == 0),
           {}};
    if (rng() % 2) c.mask = kMaskKinds[rng() % std::size(kMaskKinds)];
    expect_right(c, rng, 1);
    if (HasFailure()) return;
  }
}

// A plan takes the library up to a second to make: each problem once.
class AttentionOfCudnn : public AttentionKernel {
 protected:
  void SetUp() override {
    AttentionKernel::SetUp();
    if (IsSkipped()) return;
    if (!cuda::cudnn_missing().empty()) GTEST_SKIP() << cuda::cudnn_missing();
    session_.emplace(arena_.emplace(), properties(), cuda::KernelCache({}));
  }
  void expect_right(const AttentionSpec& spec, double scale = 1) {
    const Case c{spec, {}, scale};
    SCOPED_TRACE(to_string(c));
    Heads heads(library(), c, rng_);
    heads.expect_right(heads.run(*session_));
  }
  Rng rng_{test_seed()};
  std::optional<cuda::Arena> arena_;
  std::optional<cuda::DnnSession> session_;
};

TEST_F(AttentionOfCudnn, AnyLengthWithItsNeighbours) {
  for (const std::int64_t seq : {2, 3, 16, 17, 63, 64, 65, 100, 127, 128, 129, 257}) {
    expect_right(spec(DType::f16, 3, seq, 2, 32, true));
    expect_right(spec(DType::f16, 1, seq, 3, 64, false));
    if (HasFailure()) return;
  }
}

TEST_F(AttentionOfCudnn, HeadsUpTo128) {
  for (const std::int64_t head : {16, 24, 32, 40, 48, 64, 80, 96, 128}) {
    expect_right(spec(DType::f16, 2, 70, 3, head, true));
    expect_right(spec(DType::bf16, 3, 133, 1, head, false));
    if (HasFailure()) return;
  }
}

TEST_F(AttentionOfCudnn, LongSequencesAndManyOfThem) {
  expect_right(spec(DType::f16, 1, 3000, 2, 64, true));
  expect_right(spec(DType::bf16, 1, 1025, 1, 128, false));
  expect_right(spec(DType::f16, 5000, 5, 2, 16, true));
}

TEST_F(AttentionOfCudnn, SharpAndFlatSoftmax) {
  for (const double scale : {0.01, 4.0, 20.0}) expect_right(spec(DType::f16, 1, 128, 2, 64, true), scale);
}

TEST_F(AttentionOfCudnn, PlansAreKeptWhileTheyAreFew) {
  const auto first = session_->attention(spec(DType::f16, 1, 64, 1, 64, true));
  EXPECT_EQ(session_->attention(spec(DType::f16, 1, 64, 1, 64, true)), first);
  for (std::int64_t seq = 65; seq < 74; ++seq) session_->attention(spec(DType::f16, 1, seq, 1, 64, true));
  EXPECT_EQ(session_->kept(), 8u);
  EXPECT_EQ(session_->attention(spec(DType::f16, 1, 64, 1, 64, true)), first);  // somebody holds it
}

TEST(AttentionTiles, TheirNamesAreReadBack) {
  for (const AttentionTile tile :
       {AttentionTile{AttentionTile::Form::whole, 4, 1, 2, 64}, {}, {AttentionTile::Form::fp32, 2, 1, 1, 16}}) {
    EXPECT_EQ(AttentionTile::parse(tile.to_string()), tile);
  }
  for (const char* text : {"", "whole", "whole-w4-p1-k64x", "streamed-w0-r1-k64", "streamed-w4-k64"}) {
    EXPECT_FALSE(AttentionTile::parse(text)) << text;
  }
}

TEST(AttentionTiles, SmallDevicesGetSmallTilesAndRefusalsNameNumbers) {
  const cuda::DeviceProperties small{.max_shared_bytes = 99 << 10, .shared_bytes_per_multiprocessor = 100 << 10};
  for (const std::int64_t head_dim : {1, 32, 64, 128, 200, 256}) {
    EXPECT_FALSE(cuda::refuses_attention(spec(DType::f16, 1, 100'000, 2, head_dim, true), small)) << head_dim;
    EXPECT_FALSE(cuda::refuses_attention(spec(DType::f32, 1, 100'000, 2, head_dim, true), small)) << head_dim;
    for (const AttentionTile& tile : cuda::attention_tiles(spec(DType::f16, 1, 100'000, 2, head_dim, true), small)) {
      EXPECT_EQ(tile.form, AttentionTile::Form::streamed);
    }
  }
  const auto wide = cuda::refuses_attention(spec(DType::f16, 1, 10, 1, 320, true), small);
  ASSERT_TRUE(wide);
  EXPECT_NE(wide->find("320"), std::string::npos);
  EXPECT_EQ(cuda::attention_tiles(spec(DType::f16, 64, 100, 4, 32, true), small).front().form,
            AttentionTile::Form::whole);
}

}  // namespace
}  // namespace gnomon::test
