// The reference's passes, each against its formula, and the attention that they make together: on the device and on the
// emulator. `ops` makes launches as cuda::PlainOps does.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/arrays.hpp"
#include "cuda/kernels/params.cuh"

namespace gnomon::test {

template <typename Bytes, typename Ops>
void expect_plain_elementwise_right(const Ops& ops, Rng& rng) {
  using Array = ArrayOf<Bytes>;
  const std::int64_t rows = 257, width = 100, n = rows * width;
  const std::vector<double> a = normal_values(n, DType::f32, rng), b = normal_values(n, DType::f32, rng);
  const Array da(DType::f32, a), db(DType::f32, b);
  const Array sum(DType::f32, n), biased(DType::f32, n), scaled(DType::f32, n);
  ops.add(da.template data<float>(), db.template data<float>(), sum.template data<float>(), n).run(nullptr);
  ops.add_bias(da.template data<float>(), db.template data<float>(), biased.template data<float>(), rows, width)
      .run(nullptr);
  ops.scale(da.template data<float>(), 0.3f, scaled.template data<float>(), n).run(nullptr);
  const std::vector<double> s = sum.values(), w = biased.values(), c = scaled.values();
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(s[i], static_cast<float>(a[i]) + static_cast<float>(b[i]));
    ASSERT_EQ(w[i], static_cast<float>(a[i]) + static_cast<float>(b[i % 100]));
    ASSERT_EQ(c[i], static_cast<float>(a[i]) * 0.3f);
  }
  EXPECT_TRUE(sum.guards_intact() && biased.guards_intact() && scaled.guards_intact());
}

template <typename Bytes, typename Ops>
void expect_plain_norm_right(const Ops& ops, Rng& rng, std::initializer_list<std::int64_t> widths) {
  using Array = ArrayOf<Bytes>;
  for (const std::int64_t width : widths) {
    const std::int64_t rows = 13;
    const std::vector<double> x = normal_values(rows * width, DType::f32, rng, 2),
                              w = normal_values(width, DType::f32, rng), s = normal_values(width, DType::f32, rng);
    const Array dx(DType::f32, x), dw(DType::f32, w), ds(DType::f32, s), y(DType::f32, rows * width);
    ops.norm({.x = dx.template data<float>(),
              .weight = dw.template data<float>(),
              .shift = ds.template data<float>(),
              .y = y.template data<float>(),
              .rows = rows,
              .width = static_cast<int>(width),
              .eps = 1e-5f})
        .run(nullptr);
    const std::vector<double> got = y.values();
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

template <typename Bytes, typename Ops>
void expect_plain_heads_right(const Ops& ops, Rng& rng) {
  using Array = ArrayOf<Bytes>;
  const std::int64_t batch = 3, seq = 5, n = batch * seq * 4 * 13;
  const std::vector<double> x = normal_values(n, DType::f32, rng);
  const Array dx(DType::f32, x), split(DType::f32, n), merged(DType::f32, n);
  ops.split_heads({dx.template data<float>(), split.template data<float>(), batch, seq, 4, 13}).run(nullptr);
  ops.merge_heads({split.template data<float>(), merged.template data<float>(), batch, seq, 4, 13}).run(nullptr);
  const std::vector<double> s = split.values();
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
template <typename Bytes, typename Ops>
void expect_plain_attention_right(const Ops& ops, Rng& rng) {
  using Array = ArrayOf<Bytes>;
  const std::int64_t batch = 3, seq = 37, head_dim = 13;
  const int heads = 2;
  for (const auto& [first, queries] : {std::pair<std::int64_t, std::int64_t>{0, 37}, {20, 9}}) {
    for (const bool causal : {true, false}) {
      for (const MaskKind kind : kMaskKinds) {
        SCOPED_TRACE(fmt::format("queries {}+{} causal {} {}", first, queries, causal, name_of(kind)));
        const TestMask mask(batch, seq, kind, rng);
        const std::int64_t units = batch * heads, n = units * queries * seq;
        const std::vector<double> scores = normal_values(n, DType::f32, rng, 3);
        std::vector<double> v = normal_values(units * seq * head_dim, DType::f32, rng);
        const auto value = [&](std::int64_t u, std::int64_t k, std::int64_t f) -> double& {
          return v[static_cast<std::size_t>((u * seq + k) * head_dim + f)];
        };
        for (std::int64_t u = 0; u < units; ++u) {
          for (std::int64_t k = 0; k < seq; ++k) {
            if (!mask.valid(u / heads, k)) value(u, k, 0) = kNaN;
          }
        }
        value(0, seq - 1, 1) = kNaN;  // a valid key that only the last query sees when causal
        const Array a(DType::f32, scores), b(DType::f32, n), dv(DType::f32, v);
        const Array out(DType::f32, units * seq * head_dim);
        Bytes bytes(batch * seq);
        bytes.upload(mask.view().data);
        kernels::PlainScores p{.units = units,
                               .queries = queries,
                               .first_query = first,
                               .seq = seq,
                               .heads = heads,
                               .mask = {bytes.template data<kernels::u8>(), seq, seq, 1}};
        float *from = a.template data<float>(), *to = b.template data<float>();
        const auto next = [&] {
          p.from = from;
          p.to = to;
          std::swap(from, to);
          return p;
        };
        if (causal) ops.mask_causal(next()).run(nullptr);
        ops.mask_keys(next()).run(nullptr);
        ops.softmax(next()).run(nullptr);
        p.from = from;
        p.to = out.template data<float>();
        ops.weigh({.scores = p, .v = dv.template data<float>(), .head_dim = head_dim, .causal = causal}).run(nullptr);
        const std::vector<double> got = out.values();
        EXPECT_TRUE(out.guards_intact() && a.guards_intact() && b.guards_intact());
        for (std::int64_t u = 0; u < units; ++u) {
          for (std::int64_t q = 0; q < queries; ++q) {
            double largest = -kInf, sum = 0;
            std::vector<double> want(static_cast<std::size_t>(head_dim), 0.0);
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

}  // namespace gnomon::test
