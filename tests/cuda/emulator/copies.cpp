#include "cuda/emulator/copies.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "cuda/emulator/barriers.hpp"
#include "cuda/emulator/engine.hpp"
#include "cuda/emulator/shared_memory.hpp"

namespace gnomon::emulator {
namespace {

constexpr int kNaN = 0xff;  // a byte: NaN in every type

void run_copies(Thread& thread, std::uint64_t end) {  // of all groups before `end`, in any order
  auto& copies = thread.copies;
  while (true) {
    const auto due = std::partition(copies.begin(), copies.end(), [&](const auto& c) { return c.group >= end; });
    if (due == copies.end()) return;
    const auto one =
        due + static_cast<std::ptrdiff_t>(cluster->random.below(static_cast<std::size_t>(copies.end() - due)));
    one->run();
    copies.erase(one);
  }
}

void require_sixteens(const char* what, std::uint64_t from, std::uint32_t bytes) {
  if (from % 16 != 0 || bytes % 16 != 0 || bytes == 0)
    fail("{}: {} bytes from {:#x}: both must be multiples of 16", what, bytes, from);
}

// The bytes of a copy that lie in a CTA's shared memory, or in device memory, which has no `shared`.
struct Source {
  const unsigned char* data;
  SharedBytes* shared = nullptr;
  std::uint32_t offset = 0;

  void count(std::uint32_t at, std::uint32_t bytes, int by) const {
    if (!shared) return;
    for (std::uint32_t word = (offset + at) / 4; word < (offset + at + bytes) / 4; ++word)
      shared->to_be_read[word] = static_cast<std::uint8_t>(shared->to_be_read[word] + by);
  }
};

// Arrives in pieces, each at a moment of its own.
void transfer(Cta& cta, std::uint32_t offset, const Source& from, std::uint32_t bytes, std::uint32_t barrier) {
  unsigned char* const to = cta.shared->data + offset;
  auto& words = cta.shared->words;
  std::fill(words.begin() + offset / 4, words.begin() + (offset + bytes) / 4, std::uint16_t{0});
  if (cluster->spoil()) std::memset(to, kNaN, bytes);
  std::uint32_t pieces = 1 + static_cast<std::uint32_t>(cluster->random.below(3));
  for (std::uint32_t done = 0; done < bytes; --pieces) {
    const std::uint32_t rest = bytes - done, size = pieces <= 1 ? rest : std::min(rest, rest / pieces / 16 * 16 + 16);
    ++cluster->bulk_copies;
    from.count(done, size, 1);
    const auto arrive = [&cta, to = to + done, from, done, size, barrier] {
      --cluster->bulk_copies;
      from.count(done, size, -1);
      std::memcpy(to, from.data + done, size);
      mbarrier_complete(cta, barrier, size);
    };
    done += size;
    if (cluster->eager()) {
      arrive();
    } else {
      cluster->under_way.emplace_back(arrive);
    }
  }
  yield_sometimes();
}

}  // namespace

void copy_async(std::uint32_t to, const void* from, std::uint32_t bytes, bool there) {
  const Location at = locate_own(to, bytes, bytes, "cp.async");
  if (reinterpret_cast<std::uintptr_t>(from) % bytes != 0)
    fail("cp.async of {} bytes from {}, which is no multiple of it", bytes, from);
  const auto run = [data = at.data, from, bytes, there] {
    if (there) {
      std::memcpy(data, from, bytes);
    } else {
      std::memset(data, 0, bytes);
    }
  };
  if (cluster->eager()) return run();
  if (cluster->spoil()) std::memset(at.data, kNaN, bytes);
  current->copies.push_back({current->copy_groups, run});
}

void commit_copies() { ++current->copy_groups; }

void wait_copies(std::uint64_t pending) {
  if (current->copy_groups >= pending) run_copies(*current, current->copy_groups - pending);
  yield_sometimes();
}

void bulk_load(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier, std::uint32_t ranks) {
  const char* const what = "cp.async.bulk from device memory";
  require_sixteens(what, reinterpret_cast<std::uintptr_t>(from), bytes);
  const std::uint32_t offset = locate_own(to, bytes, 16, what).offset;
  const std::uint32_t barrier_offset = locate_own(barrier, 8, 8, what).offset;
  const auto* const bytes_from = static_cast<const unsigned char*>(from);
  if (ranks == kOwnCta) {
    require_mbarrier(*current->cta, barrier_offset, what);
    return transfer(*current->cta, offset, {bytes_from}, bytes, barrier_offset);
  }
  if (ranks >> cluster->ctas.size() != 0)
    fail("{}: to the CTAs of mask {:#x}, the cluster has {}", what, ranks, cluster->ctas.size());
  for (const auto& cta : cluster->ctas) {
    if (!(ranks >> cta->rank & 1)) continue;
    if (cta->live == 0) fail("{}: CTA {} has ended, its shared memory is gone", what, cta->rank);
    require_mbarrier(*cta, barrier_offset, what);
    transfer(*cta, offset, {bytes_from}, bytes, barrier_offset);
  }
}

void bulk_send(std::uint32_t to, std::uint32_t from, std::uint32_t bytes, std::uint32_t barrier) {
  const char* const what = "cp.async.bulk to another CTA";
  require_sixteens(what, from, bytes);
  const Location source = locate_own(from, bytes, 16, what), target = locate(to, bytes, 16, what);
  const Location done = locate(barrier, 8, 8, what);
  if (target.cta != done.cta)
    fail("{}: the bytes go to CTA {}, the barrier is CTA {}'s", what, target.cta->rank, done.cta->rank);
  if (const std::string why = unpublished(*source.cta, source.offset, bytes); !why.empty()) fail("{}: {}", what, why);
  require_mbarrier(*done.cta, done.offset, what);
  transfer(*target.cta, target.offset, {source.data, source.cta->shared.get(), source.offset}, bytes, done.offset);
}

void send_registers(std::uint32_t to, const std::uint32_t (&values)[4], std::uint32_t barrier) {
  const char* const what = "st.async";
  const Location target = locate(to, 16, 16, what), done = locate(barrier, 8, 8, what);
  if (target.cta != done.cta)
    fail("{}: the bytes go to CTA {}, the barrier is CTA {}'s", what, target.cta->rank, done.cta->rank);
  require_mbarrier(*done.cta, done.offset, what);
  ++cluster->bulk_copies;
  const auto arrive = [&cta = *target.cta, data = target.data, bytes = std::to_array(values), at = done.offset] {
    --cluster->bulk_copies;
    std::memcpy(data, bytes.data(), 16);
    mbarrier_complete(cta, at, 16);
  };
  if (cluster->eager()) {
    arrive();
  } else {
    cluster->under_way.emplace_back(arrive);
  }
  yield_sometimes();
}

void bulk_prefetch(const void* from, std::uint32_t bytes) {
  require_sixteens("cp.async.bulk.prefetch.L2", reinterpret_cast<std::uintptr_t>(from), bytes);
}

}  // namespace gnomon::emulator
