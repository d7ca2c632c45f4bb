#include "reference/plain_attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/floats.hpp"

namespace gnomon::test {
namespace {

using reference::HeadViews;
using reference::KeyMask;
using reference::PlainAttention;

TEST(PlainAttention, EachPassDoesItsPart) {
  // Two queries (the second and third of three tokens), head size 1: numbers one can follow by hand.
  constexpr std::int64_t kSeq = 3;
  float q[] = {1, 2, 3}, k[] = {1, -1, 2}, v[] = {10, 20, 30}, out[] = {0, 0, 0};
  const PlainAttention attention(/*queries=*/2, kSeq, /*head_dim=*/1, 1, 1, /*causal=*/true, 1);
  const HeadViews head{/*q0=*/1, q, k, v, out};
  EXPECT_EQ(attention.score_floats(), 6);
  float scores[6], weights[6];
  attention.score(0, head, scores);
  EXPECT_EQ(std::vector<float>(scores, scores + 6), (std::vector<float>{2, -2, 4, 3, -3, 6}));
  attention.scale(scores, weights);
  EXPECT_EQ(weights[2], 4);
  attention.mask_causal(head, weights, scores);
  EXPECT_EQ(std::vector<float>(scores, scores + 6), (std::vector<float>{2, -2, -kInf, 3, -3, 6}));
  const std::uint8_t valid[] = {0, 9, 1, 9, 1, 9};
  attention.mask_keys({valid, 2}, scores, weights);
  EXPECT_EQ(std::vector<float>(weights, weights + 6), (std::vector<float>{-kInf, -2, -kInf, -kInf, -3, 6}));
  attention.softmax(weights, scores);
  std::swap_ranges(scores, scores + 6, weights);
  EXPECT_EQ(weights[1], 1.0f);
  EXPECT_NEAR(weights[4], std::exp(-9.0) / (1 + std::exp(-9.0)), 1e-9);
  attention.weigh(0, weights, head, {valid, 2});
  EXPECT_EQ(out[0], 0) << "the first query is not of this block";
  EXPECT_NEAR(out[1], 20, 1e-5);
  EXPECT_NEAR(out[2], 30 - 10 * weights[4], 1e-5);
}

TEST(PlainAttention, ScalesByTheRootOfTheHeadSize) {
  const PlainAttention attention(1, 1, 16, 16, 16, false, 1);
  float score = 8;
  attention.scale(&score, &score);
  EXPECT_EQ(score, 2);
}

// A value that is not finite behind a weight of 0 adds nothing where it is masked, and is NaN where it is seen.
TEST(PlainAttention, AMaskedValueIsNotMultiplied) {
  for (const float bad : {kNaN, kInf}) {
    float q[] = {0, 0, 0}, k[] = {0, 0, 0}, v[] = {1, bad, 3}, out[3];
    const std::uint8_t valid[] = {1, 0, 1};
    const PlainAttention bidirectional(3, 3, 1, 1, 1, /*causal=*/false, 1);
    const float weights[] = {0.5f, 0, 0.5f, 0.5f, 0, 0.5f, 0.5f, 0, 0.5f};
    bidirectional.weigh(0, weights, {0, q, k, v, out}, {valid, 1});
    for (const float o : out) EXPECT_EQ(o, 2);

    const PlainAttention causal(3, 3, 1, 1, 1, /*causal=*/true, 1);
    const float lower[] = {1, 0, 0, 0.5f, 0.5f, 0, 0.25f, 0.25f, 0.5f};
    causal.weigh(0, lower, {0, q, k, v, out}, {});
    EXPECT_EQ(out[0], 1);
    EXPECT_FALSE(std::isfinite(out[1]));
    EXPECT_FALSE(std::isfinite(out[2]));
  }
}

}  // namespace
}  // namespace gnomon::test
