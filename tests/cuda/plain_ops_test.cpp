// The reference's passes on the device, each against its formula, and the attention that they make together.
#include "cuda/plain_ops.hpp"

#include <fmt/format.h>

#include "cuda/on_device.hpp"

namespace gnomon::test {
namespace {

class PlainOpsKernel : public OnDevice {
 protected:
  using Values = std::vector<double>;
  static cuda::PlainOps ops() { return cuda::PlainOps(library()); }
};

TEST_F(PlainOpsKernel, Elementwise) {
  Rng rng(test_seed());
  const std::int64_t rows = 257, width = 100, n = rows * width;
  const Values a = normal_values(n, DType::f32, rng), b = normal_values(n, DType::f32, rng);
  const DeviceArray da(DType::f32, a), db(DType::f32, b);
  const DeviceArray sum(DType::f32, n), biased(DType::f32, n), scaled(DType::f32, n);
  ops().add(da.data<float>(), db.data<float>(), sum.data<float>(), n).run(nullptr);
  ops().add_bias(da.data<float>(), db.data<float>(), biased.data<float>(), rows, width).run(nullptr);
  ops().scale(da.data<float>(), 0.3f, scaled.data<float>(), n).run(nullptr);
  const Values s = sum.values(), w = biased.values(), c = scaled.values();
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(s[i], static_cast<float>(a[i]) + static_cast<float>(b[i]));
    ASSERT_EQ(w[i], static_cast<float>(a[i]) + static_cast<float>(b[i % 100]));
    ASSERT_EQ(c[i], static_cast<float>(a[i]) * 0.3f);
  }
  EXPECT_TRUE(sum.guards_intact() && biased.guards_intact() && scaled.guards_intact());
}

TEST_F(PlainOpsKernel, Norm) {
  Rng rng(test_seed());
  for (const std::int64_t width : {1, 7, 128, 1000, 20'000}) {
    const std::int64_t rows = 13;
    const Values x = normal_values(rows * width, DType::f32, rng, 2), w = normal_values(width, DType::f32, rng),
                 s = normal_values(width, DType::f32, rng);
    const DeviceArray dx(DType::f32, x), dw(DType::f32, w), ds(DType::f32, s), y(DType::f32, rows * width);
    ops()
        .norm({.x = dx.data<float>(),
               .weight = dw.data<float>(),
               .shift = ds.data<float>(),
               .y = y.data<float>(),
               .rows = rows,
               .width = static_cast<int>(width),
               .eps = 1e-5f})
        .run(nullptr);
    const Values got = y.values();
    for (std::int64_t r = 0; r < rows; ++r) {
      double mean = 0, variance = 0;
      const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(r * width + i); };
      for (std::int64_t i = 0; i < width; ++i) mean += x[at(i)] / static_cast<double>(width);
      for (std::int64_t i = 0; i < width; ++i) variance += std::pow(x[at(i)] - mean, 2) / static_cast<double>(width);
      for (std::int64_t i = 0; i < width; ++i) {
        const auto c = static_cast<std::size_t>(i);
        const double want = (x[at(i)] - mean) / std::sqrt(variance + 1e-5) * w[c] + s[c];
        ASSERT_NEAR(got[at(i)], want, 2e-6 * (1 + std::fabs(want))) << width << " row " << r << " column " << i;
      }
    }
  }
}

TEST_F(PlainOpsKernel, HeadsAreSplitAndMerged) {
  Rng rng(test_seed());
  const std::int64_t batch = 3, seq = 5, n = batch * seq * 4 * 13;
  const Values x = normal_values(n, DType::f32, rng);
  const DeviceArray dx(DType::f32, x), split(DType::f32, n), merged(DType::f32, n);
  ops().split_heads({dx.data<float>(), split.data<float>(), batch, seq, 4, 13}).run(nullptr);
  ops().merge_heads({split.data<float>(), merged.data<float>(), batch, seq, 4, 13}).run(nullptr);
  const Values s = split.values();
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t t = 0; t < seq; ++t) {
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t f = 0; f < 13; ++f) {
          ASSERT_EQ(s[static_cast<std::size_t>(((b * 4 + h) * seq + t) * 13 + f)],
                    x[static_cast<std::size_t>(((b * seq + t) * 4 + h) * 13 + f)]);
        }
      }
    }
  }
  EXPECT_EQ(merged.values(), x);
}

// Masks, softmax and weighing, for all queries at once and for a block of them.
TEST_F(PlainOpsKernel, FromScoresToOutput) {
  Rng rng(test_seed());
  const std::int64_t batch = 3, seq = 37, head_dim = 13;
  const int heads = 2;
  for (const auto& [first, queries] : {std::pair<std::int64_t, std::int64_t>{0, 37}, {20, 9}}) {
    for (const bool causal : {true, false}) {
      for (const MaskKind kind : kMaskKinds) {
        SCOPED_TRACE(fmt::format("queries {}+{} causal {} {}", first, queries, causal, name_of(kind)));
        const TestMask mask(batch, seq, kind, rng);
        const std::int64_t units = batch * heads, n = units * queries * seq;
        const Values scores = normal_values(n, DType::f32, rng, 3);
        Values v = normal_values(units * seq * head_dim, DType::f32, rng);
        const auto value = [&](std::int64_t u, std::int64_t k, std::int64_t f) -> double& {
          return v[static_cast<std::size_t>((u * seq + k) * head_dim + f)];
        };
        for (std::int64_t u = 0; u < units; ++u) {
          for (std::int64_t k = 0; k < seq; ++k) {
            if (!mask.valid(u / heads, k)) value(u, k, 0) = kNaN;
          }
        }
        value(0, seq - 1, 1) = kNaN;  // a valid key that only the last query sees when causal
        const DeviceArray a(DType::f32, scores), b(DType::f32, n), dv(DType::f32, v);
        const DeviceArray out(DType::f32, units * seq * head_dim);
        DeviceBytes bytes(batch * seq);
        bytes.upload(mask.view().data);
        kernels::PlainScores p{.units = units,
                               .queries = queries,
                               .first_query = first,
                               .seq = seq,
                               .heads = heads,
                               .mask = {bytes.data<kernels::u8>(), seq, seq, 1}};
        float *from = a.data<float>(), *to = b.data<float>();
        const auto next = [&] {
          p.from = from;
          p.to = to;
          std::swap(from, to);
          return p;
        };
        if (causal) ops().mask_causal(next()).run(nullptr);
        ops().mask_keys(next()).run(nullptr);
        ops().softmax(next()).run(nullptr);
        p.from = from;
        p.to = out.data<float>();
        ops().weigh({.scores = p, .v = dv.data<float>(), .head_dim = head_dim, .causal = causal}).run(nullptr);
        const Values got = out.values();
        EXPECT_TRUE(out.guards_intact() && a.guards_intact() && b.guards_intact());
        for (std::int64_t u = 0; u < units; ++u) {
          for (std::int64_t q = 0; q < queries; ++q) {
            double largest = -kInf, sum = 0;
            Values want(static_cast<std::size_t>(head_dim), 0.0);
            const auto each = [&](auto&& f) {
              for (std::int64_t k = 0; k < seq; ++k) {
                if (mask.valid(u / heads, k) && (!causal || k <= first + q))
                  f(k, scores[static_cast<std::size_t>((u * queries + q) * seq + k)]);
              }
            };
            each([&](std::int64_t, double score) { largest = std::max(largest, score); });
            each([&](std::int64_t, double score) { sum += std::exp(score - largest); });
            each([&](std::int64_t k, double score) {
              for (std::int64_t f = 0; f < head_dim; ++f)
                want[static_cast<std::size_t>(f)] += std::exp(score - largest) / sum * value(u, k, f);
            });
            for (std::int64_t f = 0; f < head_dim; ++f) {
              const double at = got[static_cast<std::size_t>((u * seq + first + q) * head_dim + f)];
              ASSERT_TRUE(near(at, want[static_cast<std::size_t>(f)], 4e-6))
                  << "unit " << u << " query " << first + q << " feature " << f << " is " << at << ", expected "
                  << want[static_cast<std::size_t>(f)];
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace gnomon::test
