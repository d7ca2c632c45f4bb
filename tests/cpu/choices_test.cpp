#include "cpu/choices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/error.hpp"

namespace gnomon::cpu {
namespace {

std::string round_trip(const Choices& choices) {
  const Candidate candidate = to_candidate(choices);
  const Candidate again = to_candidate(parse_choices(Candidate::parse(candidate.to_string())));
  EXPECT_EQ(again, candidate);
  return again.to_string();
}

TEST(Choices, EveryValueSurvivesTheRoundTrip) {
  std::set<std::string> texts;
  for (const Path path : {Path::plain, Path::stack}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16_qk, Precision::bf16}) {
      for (const Partition partition : {Partition::sequence, Partition::row, Partition::head}) {
        for (const std::int64_t count : {0, 1, 7, 1 << 20}) {
          texts.insert(round_trip({.path = path,
                                   .precision = precision,
                                   .partition = partition,
                                   .threads = 3,
                                   .slices = count,
                                   .chunk = count}));
        }
      }
    }
  }
  EXPECT_EQ(texts.size(), 2u * 3 * 3 * 4) << "two different choices have one text";
}

TEST(Choices, EachSwitchIsItsOwn) {
  bool Choices::*const switches[] = {
      &Choices::fused_attention, &Choices::causal_skip, &Choices::mask_elision, &Choices::fused_qkv,
      &Choices::fused_norm,      &Choices::gemm_gelu,   &Choices::graph};
  for (const auto one : switches) {
    Choices choices;
    choices.*one = false;
    const Choices again = parse_choices(to_candidate(choices));
    for (const auto other : switches) EXPECT_EQ(again.*other, other != one);
  }
}

TEST(Choices, ThePlainPathHasEverythingOff) {
  EXPECT_EQ(
      to_candidate(plain_choices(2)).to_string(),
      "path=plain precision=fp32 fused_attention=off causal_skip=off mask_elision=off fused_qkv=off fused_norm=off "
      "gemm_gelu=off graph=off partition=row threads=2 slices=all chunk=all");
}

TEST(Choices, RefuseWhatTheyDoNotKnowWithTheValueAndWhatIsAllowed) {
  struct Row {
    const char *text, *part, *other;
  };
  for (const Row& row : {Row{"warp=on", "'warp' is no choice", "partition"},
                         {"path=cuda", "'cuda'", "plain, stack"},
                         {"precision=fp16", "'fp16'", "fp32, bf16_qk, bf16"},
                         {"fused_qkv=yes", "'yes'", "off, on"},
                         {"partition=column", "'column'", "sequence, row, head"},
                         {"threads=0", "'0'", "from 1"},
                         {"threads=all", "'all'", "a number"},
                         {"slices=0", "'0'", "or 'all'"},
                         {"slices=-1", "'-1'", "slices"},
                         {"chunk=3x", "'3x'", "chunk"},
                         {"chunk=99999999999999999999", "'99999999999999999999'", "number"}}) {
    try {
      parse_choices(Candidate::parse(row.text));
      ADD_FAILURE() << row.text << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::caller) << row.text;
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr(row.part), testing::HasSubstr(row.other)))
          << row.text;
    }
  }
}

// An int is what the pool takes; a number beyond it must not wrap to a small or negative one.
TEST(Choices, ThreadsBeyondAnIntAreRefused) {
  for (const char* text : {"threads=4294967297", "threads=2147483648"}) {
    try {
      parse_choices(Candidate::parse(text));
      ADD_FAILURE() << text << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::caller);
    }
  }
}

}  // namespace
}  // namespace gnomon::cpu
