// Sizes rounded up.
#pragma once

#include <cstdint>

namespace gnomon::cpu {

constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }
constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) { return ceil_div(n, to) * to; }
constexpr std::int64_t whole_lines(std::int64_t floats) { return round_up(floats, 16); }  // 16 floats: a cache line

}  // namespace gnomon::cpu
