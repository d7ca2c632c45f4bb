// Attention against the formula in double precision, on the device and on the emulator. Masked keys hold NaN
// throughout: they must not be seen.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "cuda/arrays.hpp"

namespace gnomon::test {

// `Spec` names dtype, batch, seq, heads, head_dim, causal and masked: cuda::AttentionSpec, or the emulator's.
template <typename Spec>
struct AttentionCase {
  Spec spec;
  std::optional<MaskKind> mask;
  double scale = 1;  // of Q and K
};

template <typename Spec>
std::string to_string(const AttentionCase<Spec>& c) {
  return fmt::format("{} B={} S={} H={} head_dim={} causal={} mask={} scale={}", gnomon::name_of(c.spec.dtype),
                     c.spec.batch, c.spec.seq, c.spec.heads, c.spec.head_dim, c.spec.causal,
                     c.mask ? name_of(*c.mask) : "none", c.scale);
}

// Q, K and V side by side in rows of 3 d.
template <typename Spec>
class AttentionProblem {
 public:
  AttentionProblem(const AttentionCase<Spec>& c, Rng& rng)
      : c_(c), d_(c.spec.heads * c.spec.head_dim), tokens_(c.spec.batch * c.spec.seq) {
    c_.spec.masked = c.mask.has_value();
    qkv_ = normal_values(tokens_ * 3 * d_, c.spec.dtype, rng);
    if (c.mask) mask_ = std::make_unique<TestMask>(c.spec.batch, c.spec.seq, *c.mask, rng);
    for (std::int64_t t = 0; t < tokens_; ++t) {
      for (std::int64_t f = 0; f < 2 * d_; ++f) at(t, f) = stored(at(t, f) * c.scale, c.spec.dtype);
      for (std::int64_t f = d_; f < 3 * d_ && !valid(t / c.spec.seq, t % c.spec.seq); ++f) at(t, f) = kNaN;
    }
  }

  double& at(std::int64_t token, std::int64_t column) {
    return qkv_[static_cast<std::size_t>(token * 3 * d_ + column)];
  }
  double at(std::int64_t token, std::int64_t column) const {
    return qkv_[static_cast<std::size_t>(token * 3 * d_ + column)];
  }
  bool valid(std::int64_t b, std::int64_t s) const { return !mask_ || mask_->valid(b, s); }
  bool sees(std::int64_t b, std::int64_t q, std::int64_t k) const { return valid(b, k) && (!c_.spec.causal || k <= q); }
  const Spec& spec() const { return c_.spec; }
  const std::vector<double>& qkv() const { return qkv_; }
  const TestMask* mask() const { return mask_.get(); }
  std::int64_t width() const { return d_; }
  std::int64_t tokens() const { return tokens_; }

  std::vector<double> formula(std::int64_t b, std::int64_t h, std::int64_t q) const {
    const auto& s = c_.spec;
    std::vector<double> weights, out(static_cast<std::size_t>(s.head_dim), 0.0);
    std::vector<std::int64_t> seen;
    double largest = -kInf, sum = 0;
    for (std::int64_t k = 0; k < s.seq; ++k) {
      if (!sees(b, q, k)) continue;
      double dot = 0;
      for (std::int64_t f = 0; f < s.head_dim; ++f)
        dot += at(b * s.seq + q, h * s.head_dim + f) * at(b * s.seq + k, d_ + h * s.head_dim + f);
      seen.push_back(k);
      weights.push_back(dot / std::sqrt(static_cast<double>(s.head_dim)));
      largest = std::max(largest, weights.back());
    }
    for (double& w : weights) sum += w = std::exp(w - largest);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      for (std::size_t f = 0; f < out.size(); ++f) {
        out[f] += weights[i] / sum * at(b * s.seq + seen[i], 2 * d_ + h * s.head_dim + static_cast<std::int64_t>(f));
      }
    }
    return out;
  }

  // All rows of short sequences; of long ones those at the ends and beside the borders of tiles.
  void expect_right(const std::vector<double>& got) const {
    const auto& s = c_.spec;
    const bool half = s.dtype != DType::f32;
    // Weights are rounded to the stored type, half a unit of each; values reach 5. fp32: scores of scale^2 carry a few
    // units of 2^-24 into the exponential.
    const double weights = half ? unit_of(s.dtype, 4) / 2 : 4e-6 * (1 + c_.scale * c_.scale);
    for (std::int64_t b = 0; b < s.batch; ++b) {
      if (b > 1 && b + 2 < s.batch && b % 997 != 0) continue;
      for (std::int64_t h = 0; h < s.heads; ++h) {
        for (std::int64_t q = 0; q < s.seq; ++q) {
          const bool border = q < 2 || s.seq - q < 3 || (q + 1) % 64 < 2 || q % 97 == 0;
          if (s.seq > 140 && !border) continue;
          if (s.seq > 2000 && q % 97 != 0 && s.seq - q > 2) continue;
          const auto want = formula(b, h, q);
          for (std::size_t f = 0; f < want.size(); ++f) {
            const double value = got[static_cast<std::size_t>((b * s.seq + q) * d_ + h * s.head_dim) + f];
            const double bound = weights + (half ? unit_of(s.dtype, want[f]) / 2 : 0);
            ASSERT_TRUE(near(value, want[f], bound)) << "b " << b << " h " << h << " row " << q << " feature " << f
                                                     << " is " << value << ", expected " << want[f];
          }
        }
      }
    }
  }

  // After `value` was put into a column of one token of the first sequence: it reaches the rows that see the token, and
  // no other row. Heads of 32 features, two of them.
  void expect_only_where_seen(const std::vector<double>& got, double value, std::int64_t token,
                              std::int64_t column) const {
    const auto& s = c_.spec;
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t q = 0; q < s.seq; ++q) {
        for (std::int64_t f = 0; f < 64; ++f) {
          const double out = got[static_cast<std::size_t>((b * s.seq + q) * 64 + f)];
          const bool touched =
              b == 0 && f < 32 && (column < 64 ? q == token : sees(0, q, token) && (column < 128 || f == column - 128));
          // K of -infinity may only take a key's weight away.
          if (!touched || column >= 128) {
            ASSERT_EQ(std::isfinite(out), !touched) << b << " " << q << " " << f << " is " << out;
          }
          if (touched && std::isnan(value)) {
            ASSERT_TRUE(std::isnan(out)) << b << " " << q << " " << f << " is " << out;
          }
        }
      }
    }
  }

 private:
  AttentionCase<Spec> c_;
  std::int64_t d_, tokens_;
  std::vector<double> qkv_;
  std::unique_ptr<TestMask> mask_;
};

}  // namespace gnomon::test
