// Tensors to judge and the verdict that the kernels must give, that of core/contract.cpp: on the device and on the
// emulator.
#pragma once

#include <gtest/gtest.h>

#include <array>

#include "core/contract.hpp"
#include "cuda/arrays.hpp"

namespace gnomon::test {

inline void expect_same_verdict(const Verdict& got, const Verdict& want) {
  EXPECT_EQ(got.worst, want.worst);
  EXPECT_EQ(got.elements, want.elements);
  EXPECT_EQ(got.out_of_contract, want.out_of_contract);
  EXPECT_EQ(got.first_bad, want.first_bad);
  EXPECT_TRUE(near(got.bad_value, want.bad_value, 0));
  EXPECT_TRUE(near(got.bad_reference, want.bad_reference, 0));
}

// r normal, u the same with noise; in every other pair some values that are not finite or far away.
inline void fill_judged(TestTensor& u, TestTensor& r, double noise, Rng& rng) {
  const auto& [batch, seq, width] = r.view().shape;
  const auto index = [&](std::int64_t n) { return static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(n)); };
  r.fill_normal(rng);
  const auto values = r.values();
  std::normal_distribution<double> normal(0, noise);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); ++i) {
    set_value(u.view(), i / (seq * width), i / width % seq, i % width,
              values[static_cast<std::size_t>(i)] + normal(rng));
  }
  if (rng() % 2) {
    for (const double special : {static_cast<double>(kNaN), static_cast<double>(kInf), -1e30, 0.0})
      set_value(rng() % 2 ? u.view() : r.view(), index(batch), index(seq), index(width), special);
  }
}

}  // namespace gnomon::test
