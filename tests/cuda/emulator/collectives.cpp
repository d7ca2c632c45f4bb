#include "cuda/emulator/collectives.hpp"

#include <algorithm>
#include <cstring>

#include "core/half.hpp"
#include "cuda/emulator/shared_memory.hpp"

namespace gnomon::emulator {
namespace {

void finish(Warp& warp, std::size_t i) {
  Meeting meeting = std::move(warp.meetings[i]);
  warp.meetings.erase(warp.meetings.begin() + static_cast<std::ptrdiff_t>(i));
  meeting.work(meeting);
  for (Thread* thread : meeting.threads) {
    if (thread && thread != current) cluster->wake(thread);
  }
}

template <typename Argument, typename F>
void each(Meeting& m, F&& f) {
  for (int lane = 0; lane < 32; ++lane) {
    if (m.arrived >> lane & 1) f(lane, *static_cast<Argument*>(m.arguments[lane]));
  }
}

float half_value(Half type, std::uint32_t pair, int which) {
  const auto bits = static_cast<std::uint16_t>(pair >> 16 * which);
  return type == Half::f16 ? f16_to_float(bits) : bf16_to_float(bits);
}

void require_all(const Meeting& m) {
  if (m.arrived != ~0u) throw_internal("{}: only the lanes {:#010x} of the warp are left", m.what, m.arrived);
}

struct Shuffle {
  std::uint64_t value;
  int source;
  std::uint64_t result;
};

struct Mma {
  Half type;
  float* d;
  const std::uint32_t* a;
  std::uint32_t b[2];
};

void multiply(Meeting& m) {
  require_all(m);
  float a[16][16], b[16][8];
  each<Mma>(m, [&](int lane, const Mma& l) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 2; ++i) {
      for (int r = 0; r < 4; ++r) a[g + r % 2 * 8][2 * t + r / 2 * 8 + i] = half_value(l.type, l.a[r], i);
      for (int r = 0; r < 2; ++r) b[2 * t + 8 * r + i][g] = half_value(l.type, l.b[r], i);
    }
  });
  float d[16][8];
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      d[row][column] = sum;
    }
  }
  each<Mma>(m, [&](int lane, const Mma& l) {
    for (int i = 0; i < 4; ++i) l.d[i] += d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  });
}

struct Matrices {
  std::uint32_t address;
  std::uint32_t* registers;
  bool transposed;
};

// The registers of the four matrices that the lanes hold, in terms of elements: f(matrix, row, column, lane, half).
template <typename F>
void each_element(bool transposed, F&& f) {
  for (int matrix = 0; matrix < 4; ++matrix) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int half = 0; half < 2; ++half) {
        const int outer = lane / 4, inner = lane % 4 * 2 + half;
        f(matrix, transposed ? inner : outer, transposed ? outer : inner, lane, half);
      }
    }
  }
}

}  // namespace

void meet(const char* what, std::uint32_t mask, void* argument, void (*work)(Meeting&)) {
  Warp& warp = *current->warp;
  const std::uint32_t bit = 1u << current->lane;
  if (!(mask & bit)) fail("{}: lane {} is not in its own mask {:#010x}", what, current->lane, mask);
  auto found = std::ranges::find(warp.meetings, mask, &Meeting::mask);
  if (found == warp.meetings.end()) {
    warp.meetings.push_back({.what = what, .work = work, .mask = mask});
    found = warp.meetings.end() - 1;
  } else if (found->work != work) {
    fail("the warp diverges: {} while lanes {:#010x} of mask {:#010x} are at {}", what, found->arrived, mask,
         found->what);
  }
  found->arguments[current->lane] = argument;
  found->threads[current->lane] = current;
  found->arrived |= bit;
  if ((found->arrived | warp.exited) == (mask | warp.exited)) {
    finish(warp, static_cast<std::size_t>(found - warp.meetings.begin()));
    if (cluster->random.once_in(4)) yield();
  } else {
    block({" of lanes {:#010x}", mask, 0, what});
  }
}

void finish_meetings(Warp& warp) {
  for (std::size_t i = 0; i < warp.meetings.size();) {
    const Meeting& m = warp.meetings[i];
    if ((m.arrived | warp.exited) == (m.mask | warp.exited)) {
      finish(warp, i);
    } else {
      ++i;
    }
  }
}

std::uint64_t shuffle(std::uint32_t mask, std::uint64_t value, int source_lane) {
  Shuffle shuffle{value, source_lane, 0};
  meet("__shfl_sync", mask, &shuffle, [](Meeting& m) {
    each<Shuffle>(m, [&](int, Shuffle& s) {
      // Of a lane that does not take part: anything.
      const bool there = m.arrived >> s.source & 1;
      s.result = there ? static_cast<const Shuffle*>(m.arguments[s.source])->value : ~std::uint64_t{0};
    });
  });
  return shuffle.result;
}

std::uint32_t ballot(std::uint32_t mask, bool value) {
  std::uint32_t word = value;
  meet("__ballot_sync", mask, &word, [](Meeting& m) {
    std::uint32_t bits = 0;
    each<std::uint32_t>(m, [&](int lane, std::uint32_t w) { bits |= w << lane; });
    each<std::uint32_t>(m, [&](int, std::uint32_t& w) { w = bits; });
  });
  return word;
}

void sync_warp(std::uint32_t mask) {
  meet("__syncwarp", mask, nullptr, [](Meeting&) {});
}

void mma_16x8x16(Half type, float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1) {
  Mma mma{type, d, a, {b0, b1}};
  meet("mma.sync", ~0u, &mma, multiply);
}

void load_matrices(std::uint32_t* registers, std::uint32_t address, bool transposed) {
  Matrices matrices{address, registers, transposed};
  locate_own(address, 16, 16, "ldmatrix");
  meet("ldmatrix", ~0u, &matrices, [](Meeting& m) {
    require_all(m);
    std::uint16_t rows[32][8];
    bool transpose = false;
    each<Matrices>(m, [&](int lane, const Matrices& l) {
      std::memcpy(rows[lane], locate_own(l.address, 16, 16, m.what).data, 16);
      transpose = l.transposed;
    });
    std::uint32_t words[32][4] = {};
    each_element(transpose, [&](int matrix, int row, int column, int lane, int half) {
      words[lane][matrix] |= std::uint32_t{rows[8 * matrix + row][column]} << 16 * half;
    });
    each<Matrices>(m, [&](int lane, const Matrices& l) { std::memcpy(l.registers, words[lane], 16); });
  });
}

void store_matrices(std::uint32_t address, const std::uint32_t* registers, bool transposed) {
  std::uint32_t row[4];  // of this lane, taken from all lanes' registers
  struct Argument {
    const std::uint32_t* registers;
    std::uint32_t* row;
    bool transposed;
  } argument{registers, row, transposed};
  meet("stmatrix", ~0u, &argument, [](Meeting& m) {
    require_all(m);
    std::uint32_t rows[32][4] = {};
    each_element(static_cast<const Argument*>(m.arguments[0])->transposed,
                 [&](int matrix, int r, int column, int lane, int half) {
                   const std::uint32_t word = static_cast<const Argument*>(m.arguments[lane])->registers[matrix];
                   rows[8 * matrix + r][column / 2] |= (word >> 16 * half & 0xffff) << 16 * (column % 2);
                 });
    each<Argument>(m, [&](int lane, const Argument& a) { std::memcpy(a.row, rows[lane], 16); });
  });
  ordinary_write(address, row, 16, "stmatrix");
}

}  // namespace gnomon::emulator
