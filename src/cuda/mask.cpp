#include "cuda/mask.hpp"

#include "cuda/instantiate.hpp"

namespace gnomon::cuda {
namespace {

constexpr int kThreads = 256;              // mask.cuh: kMaskThreads
constexpr std::int64_t kWarpTokens = 256;  // a warp takes 128 tokens at a time; longer sequences get a block

constexpr std::int64_t whole_lines(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

std::int64_t ClassifiedMask::bytes(std::int64_t batch, std::int64_t seq) {
  return batch * static_cast<std::int64_t>(sizeof(kernels::SequenceKeys)) + whole_lines(batch * words(seq) * 4) + 16;
}

ClassifiedMask ClassifiedMask::place(void* memory, std::int64_t batch, std::int64_t seq) {
  auto* at = static_cast<char*>(memory);
  ClassifiedMask placed;
  placed.keys = reinterpret_cast<kernels::SequenceKeys*>(at);
  at += batch * static_cast<std::int64_t>(sizeof(kernels::SequenceKeys));
  placed.bitmap = reinterpret_cast<kernels::u32*>(at);
  at += whole_lines(batch * words(seq) * 4);
  placed.state = reinterpret_cast<kernels::u32*>(at);
  placed.kind = placed.state + 2;
  return placed;
}

Launch<kernels::ClassifyMask> classify_mask(KernelLibrary& library, std::int64_t batch, std::int64_t seq,
                                            const ClassifiedMask& to) {
  const int threads = seq > kWarpTokens ? kThreads : 32;
  const std::int64_t sequences_per_block = kThreads / threads;
  Launch<kernels::ClassifyMask> launch;
  launch.kernel = &library.get(instantiate("mask.cuh", "classify_mask", threads));
  launch.shape = {.blocks = (batch + sequences_per_block - 1) / sequences_per_block, .threads = kThreads};
  launch.params = {.mask = {nullptr, seq, seq, 1},
                   .batch = batch,
                   .keys = to.keys,
                   .bitmap = to.bitmap,
                   .words = ClassifiedMask::words(seq),
                   .state = to.state,
                   .kind = to.kind};
  return launch;
}

}  // namespace gnomon::cuda
