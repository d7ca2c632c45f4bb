// head_attention against the formula in double precision. Keys that are masked hold NaN throughout: they must not be
// seen.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "cpu/floats.hpp"
#include "cpu/vec_kernels.hpp"
#include "cpu/vector_test.hpp"

namespace gnomon::test {
namespace {

using cpu::HeadAttention;
using cpu::vec_kernels;

enum class Keys { all, holes, prefix, suffix, none };
enum class MaskForm { list, bytes };

struct Case {
  std::int64_t head_dim, seq;
  bool causal = true, causal_skip = true;
  Keys keys = Keys::all;
  MaskForm form = MaskForm::list;
  bool in_place = false;  // the output goes over Q
  std::int64_t q_begin = 0, q_end = -1;
  double scale = 1;  // of q and k
};

std::string to_string(const Case& c) {
  return fmt::format("head_dim={} S={} causal={} skip={} keys={} form={} in_place={} q=[{},{}) scale={}", c.head_dim,
                     c.seq, c.causal, c.causal_skip, static_cast<int>(c.keys), static_cast<int>(c.form), c.in_place,
                     c.q_begin, c.q_end, c.scale);
}

bool is_valid(Keys keys, std::int64_t k, std::int64_t seq) {
  switch (keys) {
    case Keys::all:
      return true;
    case Keys::holes:
      return k * 2654435761u % 7 > 1;
    case Keys::prefix:
      return k < (seq + 1) / 2;
    case Keys::suffix:
      return k >= seq / 3;
    case Keys::none:
      return false;
  }
  return true;
}

// One head inside rows that are wider than it: q, k and v in three columns of one tensor, as the stack has them.
class Head {
 public:
  Head(const Case& c, Rng& rng)
      : c_(c),
        ld_(3 * c.head_dim + 7),
        ldo_(c.head_dim + 3),
        qkv_(c.seq * ld_),
        out_(c.seq * ldo_),
        scratch_(vec_kernels().head_attention_scratch(c.seq, c.head_dim)),
        valid_(static_cast<std::size_t>(3 * c.seq), 0xee) {
    if (c_.q_end < 0) c_.q_end = c.seq;
    qkv_.fill_normal(rng);
    for (std::int64_t t = 0; t < c.seq; ++t) {
      const bool valid = is_valid(c.keys, t, c.seq);
      valid_[static_cast<std::size_t>(3 * t)] = valid ? static_cast<std::uint8_t>(1 + t % 255) : 0;
      if (valid) list_.push_back(static_cast<std::int32_t>(t));
      for (std::int64_t f = 0; f < 2 * c.head_dim; ++f) qkv_[t * ld_ + f] *= static_cast<float>(c.scale);
      for (std::int64_t f = 0; !valid && f < 2 * c.head_dim; ++f) qkv_[t * ld_ + c.head_dim + f] = kNaN;
      for (std::int64_t f = 3 * c.head_dim; f < ld_; ++f) qkv_[t * ld_ + f] = kNaN;
    }
    before_.assign(qkv_.data(), qkv_.data() + qkv_.size());
  }

  void poison_key(std::int64_t t, float value) { change(t, c_.head_dim, value); }
  void poison_value(std::int64_t t, float value) { change(t, 2 * c_.head_dim + c_.head_dim / 2, value); }
  void poison_query(std::int64_t t, float value) { change(t, 0, value); }

  void run() {
    float* q = qkv_.data();
    HeadAttention a{.q = q,
                    .k = q + c_.head_dim,
                    .v = q + 2 * c_.head_dim,
                    .out = c_.in_place ? q : out_.data(),
                    .ldq = ld_,
                    .ldk = ld_,
                    .ldv = ld_,
                    .ldo = c_.in_place ? ld_ : ldo_,
                    .seq = c_.seq,
                    .head_dim = c_.head_dim,
                    .q_begin = c_.q_begin,
                    .q_end = c_.q_end,
                    .scale = 1.0f / std::sqrt(static_cast<float>(c_.head_dim)),
                    .causal = c_.causal,
                    .causal_skip = c_.causal_skip,
                    .keys = nullptr,
                    .n_keys = c_.seq,
                    .key_valid = nullptr,
                    .key_valid_stride = 0,
                    .scratch = scratch_.data()};
    if (c_.keys != Keys::all && c_.form == MaskForm::list) {
      a.keys = list_.data() ? list_.data() : &kNoKey;
      a.n_keys = static_cast<std::int64_t>(list_.size());
    } else if (c_.keys != Keys::all) {
      a.key_valid = valid_.data();
      a.key_valid_stride = 3;
    }
    vec_kernels().head_attention(a);
  }

  float answer(std::int64_t t, std::int64_t f) const { return c_.in_place ? qkv_[t * ld_ + f] : out_[t * ldo_ + f]; }

  void expect_nothing_else_written() const {
    ASSERT_TRUE(scratch_.guards_intact()) << "scratch overrun";
    ASSERT_TRUE(out_.guards_intact() && qkv_.guards_intact());
    for (std::int64_t t = 0; t < c_.seq; ++t) {
      const bool asked = t >= c_.q_begin && t < c_.q_end;
      for (std::int64_t f = 0; f < ldo_; ++f) {
        ASSERT_EQ(out_.written(t * ldo_ + f), asked && !c_.in_place && f < c_.head_dim)
            << "row " << t << " column " << f;
      }
      for (std::int64_t f = 0; f < ld_; ++f) {
        if (c_.in_place && asked && f < c_.head_dim) continue;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(qkv_[t * ld_ + f]), std::bit_cast<std::uint32_t>(before(t, f)));
      }
    }
  }

  std::vector<double> formula(std::int64_t t) const {
    std::vector<std::int64_t> seen;
    for (const std::int32_t k : list_) {
      if (!c_.causal || k <= t) seen.push_back(k);
    }
    std::vector<double> scores, out(static_cast<std::size_t>(c_.head_dim), 0.0);
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const std::int64_t k : seen) {
      double dot = 0;
      for (std::int64_t f = 0; f < c_.head_dim; ++f)
        dot += static_cast<double>(before(t, f)) * before(k, c_.head_dim + f);
      scores.push_back(dot / std::sqrt(static_cast<double>(c_.head_dim)));
      largest = std::max(largest, scores.back());
    }
    for (double& score : scores) sum += score = std::exp(score - largest);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      for (std::size_t f = 0; f < out.size(); ++f) {
        out[f] += scores[i] / sum * before(seen[i], 2 * c_.head_dim + static_cast<std::int64_t>(f));
      }
    }
    return out;
  }

  void expect_row(std::int64_t t) const {
    const std::vector<double> want = formula(t);
    // Scores of `scale`^2 carry a relative rounding error of a few 2^-24 each into the exponential.
    const double bound = 3e-6 * (1 + c_.scale * c_.scale);
    for (std::int64_t f = 0; f < c_.head_dim; ++f) {
      ASSERT_TRUE(near(answer(t, f), want[static_cast<std::size_t>(f)], bound))
          << "row " << t << " feature " << f << " is " << answer(t, f) << ", expected "
          << want[static_cast<std::size_t>(f)];
    }
  }

 private:
  static constexpr std::int32_t kNoKey = 0;
  float before(std::int64_t t, std::int64_t f) const { return before_[static_cast<std::size_t>(t * ld_ + f)]; }
  void change(std::int64_t t, std::int64_t f, float value) {
    before_[static_cast<std::size_t>(t * ld_ + f)] = qkv_[t * ld_ + f] = value;
  }

  Case c_;
  std::int64_t ld_, ldo_;
  GuardedFloats qkv_, out_, scratch_;
  std::vector<std::uint8_t> valid_;
  std::vector<std::int32_t> list_;
  std::vector<float> before_;
};

// All rows of a short sequence; of a long one the rows at the ends and at the borders of strips and key blocks.
std::vector<std::int64_t> checked_rows(const Case& c) {
  const std::int64_t end = c.q_end < 0 ? c.seq : c.q_end;
  std::vector<std::int64_t> rows;
  for (std::int64_t t = c.q_begin; t < end; ++t) {
    const bool border = t - c.q_begin < 2 || end - t < 3 || (t + 1) % 480 < 2 || t % 97 == 0;
    if (c.seq <= 110 || border) rows.push_back(t);
  }
  return rows;
}

void expect_right(const Case& c, Rng& rng) {
  SCOPED_TRACE(to_string(c));
  Head head(c, rng);
  head.run();
  head.expect_nothing_else_written();
  for (const std::int64_t t : checked_rows(c)) {
    head.expect_row(t);
    if (testing::Test::HasFatalFailure()) return;
  }
}

constexpr std::int64_t kHeadDims[] = {1, 4, 5, 13, 16, 20, 26, 32, 48, 64, 72, 80, 128, 160, 320};

class HeadAttentionTest : public VectorTest {};

// Every mask on one side, every form of causality on the other.
std::vector<Case> variants(std::int64_t head_dim, std::int64_t seq) {
  std::vector<Case> cases;
  for (const auto& [causal, skip] : {std::pair{false, false}, {true, false}, {true, true}}) {
    cases.push_back({.head_dim = head_dim, .seq = seq, .causal = causal, .causal_skip = skip});
    for (const Keys keys : {Keys::holes, Keys::prefix, Keys::suffix, Keys::none}) {
      for (const MaskForm form : {MaskForm::list, MaskForm::bytes}) {
        cases.push_back({.head_dim = head_dim,
                         .seq = seq,
                         .causal = causal,
                         .causal_skip = skip,
                         .keys = keys,
                         .form = form,
                         .in_place = keys == Keys::holes || keys == Keys::suffix});
      }
    }
  }
  return cases;
}

TEST_F(HeadAttentionTest, ShortSequences) {
  Rng rng(test_seed());
  for (const std::int64_t head_dim : kHeadDims) {
    for (const std::int64_t seq : {1, 2, 3, 7, 8, 9, 47, 48, 49, 100}) {
      std::vector<Case> cases = variants(head_dim, seq);
      // Longer and wider ones take a few variants each, others every time.
      if (seq * head_dim > 2000) std::shuffle(cases.begin(), cases.end(), rng), cases.resize(4);
      for (const Case& c : cases) {
        expect_right(c, rng);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(HeadAttentionTest, SequencesOfSeveralKeyBlocks) {
  Rng rng(test_seed());
  for (const std::int64_t head_dim : kHeadDims) {
    for (const std::int64_t seq : {479, 480, 481, 1000}) {
      std::vector<Case> cases = variants(head_dim, seq);
      std::shuffle(cases.begin(), cases.end(), rng);
      cases.resize(head_dim > 64 ? 1 : 3);
      for (const Case& c : cases) {
        expect_right(c, rng);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(HeadAttentionTest, RangesOfQueries) {
  Rng rng(test_seed());
  for (const auto& [begin, end] :
       {std::pair<std::int64_t, std::int64_t>{0, 1}, {3, 4}, {5, 22}, {8, 16}, {59, 60}, {31, 60}, {7, 7}}) {
    for (Case c : variants(20, 60)) {
      c.q_begin = begin;
      c.q_end = end;
      expect_right(c, rng);
      if (HasFatalFailure()) return;
    }
  }
  for (Case c : variants(16, 1000)) {
    c.q_begin = 477;
    c.q_end = 486;
    expect_right(c, rng);
    if (HasFatalFailure()) return;
  }
}

// Scores far apart: the running maximum moves from block to block, and most weights are 0.
TEST_F(HeadAttentionTest, LargeScores) {
  Rng rng(test_seed());
  for (const double scale : {4.0, 10.0}) {
    for (Case c : variants(32, 1000)) {
      if (c.keys == Keys::none) continue;
      c.scale = scale;
      expect_right(c, rng);
      if (HasFatalFailure()) return;
    }
  }
}

// What a query does not see cannot change it, not even NaN or an infinity: 0 * NaN must not happen.
TEST_F(HeadAttentionTest, NotANumberReachesOnlyTheRowsThatSeeIt) {
  Rng rng(test_seed());
  for (const std::int64_t seq : {11, 50, 500}) {
    for (const Case& c : variants(20, seq)) {
      if (c.keys != Keys::all && c.keys != Keys::holes) continue;
      for (const std::int64_t at : {seq / 2, seq - 2}) {
        const std::int64_t key = is_valid(c.keys, at, seq) ? at : at - 1;
        if (!is_valid(c.keys, key, seq)) continue;
        for (const bool value : {false, true}) {
          for (const float bad : {kNaN, kInf}) {
            if (!value && bad == kInf)
              continue;  // an infinite score is worth a weight of its own: not this test's matter
            SCOPED_TRACE(fmt::format("{}: {} in the {} of token {}", to_string(c), bad, value ? "value" : "key", key));
            Head head(c, rng);
            value ? head.poison_value(key, bad) : head.poison_key(key, bad);
            head.run();
            for (const std::int64_t t : checked_rows(c)) {
              head.expect_row(t);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST_F(HeadAttentionTest, NotANumberInAQueryIsItsOwn) {
  Rng rng(test_seed());
  for (const Case& c : variants(16, 30)) {
    if (c.keys == Keys::none) continue;
    SCOPED_TRACE(to_string(c));
    Head head(c, rng);
    head.poison_query(13, kNaN);
    head.run();
    for (const std::int64_t t : checked_rows(c)) head.expect_row(t);
  }
}

TEST_F(HeadAttentionTest, RepeatsItsBitsWhateverTheScratchHolds) {
  Rng rng(test_seed());
  const std::uint64_t seed = rng();
  std::vector<float> first;
  for (int run = 0; run < 2; ++run) {
    Rng same(seed);
    Head head({.head_dim = 26, .seq = 530, .keys = Keys::holes}, same);
    head.run();
    if (run == 1) head.run();  // the scratch holds the last run's numbers now
    std::vector<float> answers;
    for (std::int64_t t = 0; t < 530; ++t) {
      for (std::int64_t f = 0; f < 26; ++f) answers.push_back(head.answer(t, f));
    }
    if (run == 0) first = answers;
    EXPECT_EQ(first, answers);
  }
}

}  // namespace
}  // namespace gnomon::test
