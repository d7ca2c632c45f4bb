// norm_rows against double precision, on the device and on the emulator.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "cuda/arrays.hpp"
#include "cuda/kernels/params.cuh"

namespace gnomon::test {

inline constexpr float kNormEps = 1e-5f;

struct NormCase {
  std::int64_t rows, width;
  struct {
    DType residual = DType::f32;
    std::optional<DType> branch, narrow, out;
  } types;
  bool bias = true, shift = true, norm = true;
  int step = 1;            // widths from row to row of the branch
  bool remainder = false;  // the residual has one
  bool in_place = false;   // narrow rows and their remainder lie over the residual's, as in a pass
};

inline std::string to_string(const NormCase& c) {
  const auto name = [](std::optional<DType> d) { return d ? std::string(gnomon::name_of(*d)) : "-"; };
  return fmt::format(
      "rows={} width={} residual={} branch={} narrow={} out={} bias={} shift={} norm={} step={} remainder={} "
      "in_place={}",
      c.rows, c.width, name(c.types.residual), name(c.types.branch), name(c.types.narrow), name(c.types.out), c.bias,
      c.shift, c.norm, c.step, c.remainder, c.in_place);
}

// remainder.cuh: 256ths of the unit that the type has at the number's size, also where it is subnormal; 128 for none.
inline double with_remainder(double narrow, unsigned char byte, DType type) {
  const int fraction = type == DType::f16 ? 10 : 7;
  return narrow == 0 ? 0 : narrow + (byte - 128.0) * std::ldexp(1.0, std::ilogb(narrow) - fraction - 8);
}

// `run` is given what fills the parameters of a launch whose rows are contiguous.
template <typename Array, typename Run>
void expect_norm_right(const NormCase& c, Rng& rng, Run&& run) {
  SCOPED_TRACE(to_string(c));
  const std::int64_t n = c.rows * c.width;
  auto x = normal_values(n, c.types.residual, rng, 3);
  const Array dx(c.types.residual, x);
  Array dbytes(DType::f32, (n + 3) / 4);
  const Array bytes_to(DType::f32, (n + 3) / 4);
  if (c.remainder) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(dbytes.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(rng() % 256);
      x[i] = with_remainder(x[i], bytes[i], c.types.residual);
    }
    dbytes.upload(bytes.data());
  }
  const auto branch = c.types.branch ? normal_values(n, *c.types.branch, rng) : std::vector<double>();
  const auto bias = normal_values(c.width, DType::f32, rng), weight = normal_values(c.width, DType::f32, rng),
             shift = normal_values(c.width, DType::f32, rng);
  const Array dbias(DType::f32, bias), dweight(DType::f32, weight), dshift(DType::f32, shift);
  std::vector<double> branch_rows(static_cast<std::size_t>(c.types.branch ? c.rows * c.width * c.step : 0), NAN);
  for (std::size_t i = 0; i < branch.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) / c.width;
    branch_rows[i + static_cast<std::size_t>(row * c.width * (c.step - 1))] = branch[i];
  }
  const Array dbranch(c.types.branch.value_or(DType::f32), branch_rows);
  const Array sum(DType::f32, n), normalised(DType::f32, n), narrow(c.types.narrow.value_or(DType::f32), n),
      out(c.types.out.value_or(DType::f32), n), flags(DType::f32, std::vector<double>{0});
  run([&](kernels::NormRows& p) {
    p.residual = dx.data();
    p.remainder = dbytes.template data<kernels::u8>();
    p.branch = c.types.branch ? dbranch.data() : nullptr;
    p.bias = c.bias ? dbias.template data<float>() : nullptr;
    p.weight = c.norm ? dweight.template data<float>() : nullptr;
    p.shift = c.norm && c.shift ? dshift.template data<float>() : nullptr;
    p.eps = kNormEps;
    p.sum = sum.template data<float>();
    p.normalised = normalised.template data<float>();
    p.narrow = c.in_place ? dx.data() : c.types.narrow ? narrow.data() : nullptr;
    p.remainder_to = (c.in_place ? dbytes : bytes_to).template data<kernels::u8>();
    p.to = c.types.out ? out.data() : nullptr;
    p.flags = flags.template data<kernels::u32>();
  });
  const Array& dbytes_read = dbytes;
  for (const Array* a : {&sum, &normalised, &narrow, &out, &bytes_to, &dx, &dbytes_read})
    ASSERT_TRUE(a->guards_intact());
  EXPECT_EQ(flags.values()[0], 0);

  const auto got_bytes = (c.in_place ? dbytes : bytes_to).download();
  const auto got_sum = sum.values(), got = normalised.values(), got_narrow = (c.in_place ? dx : narrow).values(),
             got_out = out.values();
  for (std::int64_t r = 0; r < c.rows; ++r) {
    std::vector<double> row(static_cast<std::size_t>(c.width));
    double mean = 0, variance = 0, size = 0;
    for (std::int64_t i = 0; i < c.width; ++i) {
      const auto at = static_cast<std::size_t>(r * c.width + i), column = static_cast<std::size_t>(i);
      row[column] = x[at] + (c.types.branch ? branch[at] : 0) + (c.bias ? bias[column] : 0);
      ASSERT_NEAR(got_sum[at], row[column], 4e-7 * (1 + std::fabs(row[column]))) << at;
      mean += row[column] / static_cast<double>(c.width);
      size = std::max(size, std::fabs(row[column]));
    }
    for (const double v : row) variance += (v - mean) * (v - mean) / static_cast<double>(c.width);
    const double scale = 1 / std::sqrt(variance + kNormEps);
    for (std::int64_t i = 0; i < c.width; ++i) {
      const auto at = static_cast<std::size_t>(r * c.width + i), column = static_cast<std::size_t>(i);
      double want = row[column], bound = 4e-7 * (1 + size);
      if (c.norm) {
        want = (row[column] - mean) * scale * weight[column] + (c.shift ? shift[column] : 0);
        // The sum's own rounding, 2^-24 of the largest element, is scaled like the element.
        bound = 6e-7 * (1 + std::fabs(want)) + 3e-7 * size * scale * std::fabs(weight[column]);
      }
      ASSERT_NEAR(got[at], want, bound) << "row " << r << " column " << i;
      if (c.types.narrow) {
        ASSERT_EQ(got_narrow[at], stored(got[at], *c.types.narrow)) << at;
        if (*c.types.narrow == DType::f32) continue;
        const double part = unit_of(*c.types.narrow, got[at]) / 256, kept = std::fabs(got[at]) < 1e-4 ? 3e-8 : 0;
        ASSERT_NEAR(with_remainder(got_narrow[at], got_bytes[at], *c.types.narrow), got[at], 1.001 * part + kept) << at;
      }
      if (c.types.out) {
        ASSERT_EQ(got_out[at], stored(got[at], *c.types.out)) << at;
      }
    }
  }
}

}  // namespace gnomon::test
