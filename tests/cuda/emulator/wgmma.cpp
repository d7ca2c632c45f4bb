#include "cuda/emulator/wgmma.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/half.hpp"
#include "cuda/emulator/collectives.hpp"
#include "cuda/emulator/engine.hpp"
#include "cuda/emulator/shared_memory.hpp"

namespace gnomon::emulator {

namespace {

// In the thread's array meanwhile: a signalling NaN, which any arithmetic changes.
constexpr std::uint32_t kUnderWay = 0x7fa5a5a5;

const std::array<float, 65536>& f16_values() {
  static const auto table = [] {
    std::array<float, 65536> t;
    for (std::uint32_t i = 0; i < t.size(); ++i) t[i] = f16_to_float(static_cast<std::uint16_t>(i));
    return t;
  }();
  return table;
}

// A matrix descriptor: where the 16 k values of `rows` rows lie (PTX ISA, matrix-descriptor and canonical layouts).
class Descriptor {
 public:
  explicit Descriptor(std::uint64_t bits)
      : start_(static_cast<std::uint32_t>(bits & 0x3fff) << 4),
        leading_(static_cast<std::uint32_t>(bits >> 16 & 0x3fff) << 4),
        stride_(static_cast<std::uint32_t>(bits >> 32 & 0x3fff) << 4) {
    const auto base = static_cast<int>(bits >> 49 & 7), mode = static_cast<int>(bits >> 62);
    row_bytes_ = mode == 1 ? 128 : mode == 2 ? 64 : mode == 3 ? 32 : 16;
    swizzled_ = mode != 0;
    constexpr std::uint64_t kUnused =
        (std::uint64_t{3} << 14) | (std::uint64_t{3} << 30) | (std::uint64_t{7} << 46) | (std::uint64_t{0x3ff} << 52);
    if (bits & kUnused)
      throw_internal("wgmma: descriptor {:#018x} sets bits that mean nothing: {:#x}", bits, bits & kUnused);
    if (base != 0) throw_internal("wgmma: descriptor {:#018x} has base offset {}: not emulated", bits, base);
    // Inside an atom only the chunk of a row may vary: a start in a later row needs a base offset.
    if (swizzled_ && start_ % (8 * row_bytes_) >= row_bytes_) {
      throw_internal("wgmma: descriptor {:#018x} starts at {:#x}, inside an atom of 8 rows of {} bytes", bits, start_,
                     row_bytes_);
    }
  }

  // out[row][16], rows of the operand: the M of A, the N of B.
  void read(const Cta& cta, int rows, bool transposed, float (*out)[16], const char* what) const {
    const auto& value = f16_values();
    const std::uint32_t chunk_columns = row_bytes_ / 2;
    if (!transposed) {
      for (int row = 0; row < rows; ++row) {
        const auto r = static_cast<std::uint32_t>(row);
        for (std::uint32_t half = 0; half < 2; ++half) {
          const std::uint32_t at = swizzled_ ? r % 8 * row_bytes_ + half * 16 : r % 8 * 16 + half * leading_;
          std::uint16_t eight[8];
          chunk(cta, start_ + r / 8 * stride_ + at, eight, what);
          for (int i = 0; i < 8; ++i) out[row][8 * half + static_cast<std::uint32_t>(i)] = value[eight[i]];
        }
      }
      return;
    }
    for (std::uint32_t k = 0; k < 16; ++k) {
      for (int row = 0; row < rows; row += 8) {
        const auto r = static_cast<std::uint32_t>(row);
        const std::uint32_t at =
            swizzled_ ? k / 8 * stride_ + r / chunk_columns * leading_ + k % 8 * row_bytes_ + r % chunk_columns * 2
                      : k / 8 * leading_ + r / 8 * stride_ + k % 8 * 16;
        std::uint16_t eight[8];
        chunk(cta, start_ + at, eight, what);
        for (int i = 0; i < 8; ++i) out[row + i][k] = value[eight[i]];
      }
    }
  }

 private:
  void chunk(const Cta& cta, std::uint32_t address, std::uint16_t (&to)[8], const char* what) const {
    if (swizzled_) address ^= (address >> 3) & (row_bytes_ - 16);
    const SharedBytes& shared = *cta.shared;
    if (address < kSharedAt || address - kSharedAt + 16 > shared.size) {
      throw_internal(
          "wgmma: {} lies at shared address {:#x}, the block has [{:#x}, {:#x}); start {:#x}, leading {}, "
          "stride {}, rows of {} bytes",
          what, address, kSharedAt, kSharedAt + shared.size, start_, leading_, stride_, row_bytes_);
    }
    std::memcpy(to, shared.data + (address - kSharedAt), 16);
    // What the thread that wrote it has not fenced may not be seen yet: an error only where the result is used.
    if (const std::string why = unpublished(cta, address - kSharedAt, 16); !why.empty()) {
      std::memset(to, 0xff, 16);
      cluster->note(fmt::format("wgmma: {}: {}", what, why));
    }
  }

  std::uint32_t start_, leading_, stride_, row_bytes_;
  bool swizzled_;
};

// Where an element of a warp's 16 rows of D is held.
int lane_of(int row, int column) { return row % 8 * 4 + column % 8 / 2; }
std::size_t place_of(int row, int column) {
  return static_cast<std::size_t>(column / 8 * 4 + row / 8 * 2 + column % 2);
}

void compute(Warp& warp, Product& p) {
  static thread_local float a[16][16], b[256][16], columns[16][256], d[16][256];
  if (p.operands.a_registers) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int r = 0; r < 4; ++r) {
        for (int i = 0; i < 2; ++i) {
          a[lane / 4 + r % 2 * 8][lane % 4 * 2 + r / 2 * 8 + i] = f16_values()[p.a[lane][r] >> 16 * i & 0xffff];
        }
      }
    }
  } else {
    auto& operands = warp.cta->shared_operands[static_cast<std::size_t>(warp.number / 4)];
    SharedOperand& operand = operands[warp.products_run];
    if (operand.warps == 0 || cluster->random.once_in(2)) {
      Descriptor(p.operands.a).read(*warp.cta, 64, p.operands.a_transposed, operand.rows, "A");
    }
    std::memcpy(a, operand.rows[warp.number % 4 * 16], sizeof a);
    if (++operand.warps == 4) operands.erase(warp.products_run);
  }
  Descriptor(p.operands.b).read(*warp.cta, p.n, p.operands.b_transposed, b, "B");
  for (int n = 0; n < p.n; ++n) {
    for (int k = 0; k < 16; ++k) columns[k][n] = b[n][k];
  }
  for (int row = 0; row < 16; ++row) {
    for (int n = 0; n < p.n; ++n) {
      const float before = p.d[lane_of(row, n)]->values[place_of(row, n)];
      d[row][n] = p.operands.accumulate ? before : 0;
    }
    for (int k = 0; k < 16; ++k) {
      const float factor = a[row][k];
      for (int n = 0; n < p.n; ++n) d[row][n] += factor * columns[k][n];
    }
    for (int n = 0; n < p.n; ++n) p.d[lane_of(row, n)]->values[place_of(row, n)] = d[row][n];
  }
}

// All products of the warp before number `end`.
void run_products(Warp& warp, std::uint64_t end) {
  while (warp.products_run < end) {
    compute(warp, *warp.products.front());
    warp.products.pop_front();
    ++warp.products_run;
  }
}

// The warps of a warpgroup issue the same products.
void compare_with_warpgroup(Warp& warp, std::uint64_t number, const Product& p) {
  const auto& o = p.operands;
  const std::uint64_t kind = static_cast<std::uint64_t>(p.n) << 8 | (o.a_registers ? 8u : 0u) |
                             (o.accumulate ? 4u : 0u) | (o.a_transposed ? 2u : 0u) | (o.b_transposed ? 1u : 0u);
  const std::uint64_t entry[3] = {o.a_registers ? 0 : o.a, o.b, kind};
  auto& log = warp.cta->product_log[static_cast<std::size_t>(warp.number / 4)];
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t at = 3 * number + i;
    if (at == log.size()) log.push_back(entry[i]);
    if (log[at] != entry[i]) {
      fail("wgmma: product {} of warp {} is not what another warp of its warpgroup issued ({} is {:#x}, there {:#x})",
           number, warp.number,
           i == 0   ? "A's descriptor"
           : i == 1 ? "B's descriptor"
                    : "N and kind",
           entry[i], log[at]);
    }
  }
}

Accumulators& accumulators_at(float* d, std::size_t size) {
  for (const auto& a : current->accumulators) {
    if (a->d == d && a->values.size() == size) return *a;
    if (d < a->d + a->values.size() && a->d < d + size)
      fail("wgmma: accumulators of {} floats overlap others of {} that a product works on", size, a->values.size());
  }
  auto made = std::make_unique<Accumulators>();
  made->d = d;
  made->values.assign(d, d + size);
  std::fill_n(d, size, std::bit_cast<float>(kUnderWay));
  current->accumulators.push_back(std::move(made));
  return *current->accumulators.back();
}

}  // namespace

void wgmma_fence() { current->wgmma_fenced = true; }

void wgmma_multiply(float* d, int n, const Operands& operands) {
  if (!current->wgmma_fenced) fail("wgmma: a product without a fence (begin) since the last wait");
  if (n < 8 || n > 256 || n % 8 != 0) fail("wgmma: N is {}", n);
  Warp& warp = *current->warp;
  if (warp.cta->warps.size() < static_cast<std::size_t>(warp.number / 4 * 4 + 4))
    fail("wgmma: warp {} belongs to no whole warpgroup, the block has {} warps", warp.number, warp.cta->warps.size());
  const std::uint64_t number = current->products++;
  while (warp.products_run + warp.products.size() <= number) warp.products.push_back(std::make_unique<Product>());
  Product& p = *warp.products[number - warp.products_run];
  if (p.lanes == 0) {
    p.operands = operands;
    p.n = n;
  } else if (p.operands.a != operands.a || p.operands.b != operands.b || p.n != n ||
             p.operands.accumulate != operands.accumulate ||
             (p.operands.a_registers == nullptr) != (operands.a_registers == nullptr)) {
    fail("wgmma: the lanes of warp {} differ: B's descriptor is {:#x} here and {:#x} there, N {} and {}", warp.number,
         operands.b, p.operands.b, n, p.n);
  }
  if (operands.a_registers) std::copy_n(operands.a_registers, 4, p.a[current->lane]);
  Accumulators& mine = accumulators_at(d, static_cast<std::size_t>(n) / 2);
  mine.last_product = number;
  p.d[current->lane] = &mine;
  p.lanes |= 1u << current->lane;
  if (p.lanes != ~0u) return;
  compare_with_warpgroup(warp, number, p);
  if (cluster->eager()) {
    run_products(warp, number + 1);
  } else {
    cluster->under_way.emplace_back([&warp, number] { run_products(warp, number + 1); });
  }
}

void wgmma_commit() { current->product_groups.push_back(current->products); }

void wgmma_wait(std::uint64_t pending) {
  struct Argument {
    std::uint64_t end, issued;
  } argument{0, current->products};
  const auto& groups = current->product_groups;
  if (groups.size() > pending) argument.end = groups[groups.size() - 1 - pending];
  meet("wgmma.wait_group", ~0u, &argument, [](Meeting& m) {
    const Argument& first = *static_cast<const Argument*>(m.arguments[0]);
    for (void* other : m.arguments) {
      const auto* const o = static_cast<const Argument*>(other);
      if (!o || o->end != first.end || o->issued != first.issued)
        throw_internal("wgmma.wait_group: the lanes of a warp wait for different products, or some have exited");
    }
    run_products(*m.threads[0]->warp, first.end);
  });
  const auto* const here = static_cast<const char*>(__builtin_frame_address(0));
  std::erase_if(current->accumulators, [&](const auto& a) {
    if (a->last_product >= argument.end) return false;
    const std::size_t bytes = a->values.size() * sizeof(float);
    if (reinterpret_cast<const char*>(a->d) < here)
      fail("wgmma: the accumulators' scope ended before the products were waited for");
    for (std::size_t i = 0; i < a->values.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(a->d[i]) != kUnderWay)
        fail("wgmma: accumulator {} of {} was written while products worked on it", i, a->values.size());
    }
    std::memcpy(a->d, a->values.data(), bytes);
    return true;
  });
  current->wgmma_fenced = false;
}

void check_finished_products(Cta& cta) {
  for (const auto& warp : cta.warps) {
    if (!warp->products.empty()) {
      throw_internal("wgmma: warp {} ended with {} products that it has not waited for", warp->number,
                     warp->products.size());
    }
    const std::size_t issued = cta.product_log[static_cast<std::size_t>(warp->number / 4)].size() / 3;
    if (warp->products_run != issued) {
      throw_internal("wgmma: warp {} issued {} products, its warpgroup {}", warp->number, warp->products_run, issued);
    }
  }
}

}  // namespace gnomon::emulator
