// What a [B, S] mask says, once per call and without the host: for each sequence the range of its valid keys, their
// number and a bitmap, and for the whole call the least class that describes it. Attention takes from these where it
// may start, where it may stop, and whether it must look at the bitmap at all.
#pragma once

#include "reduce.cuh"

namespace gnomon::kernels {

constexpr int kMaskThreads = 256;

// kThreads threads to a sequence: a warp for short ones, the block for long ones.
template <int kThreads>
__global__ void __launch_bounds__(kMaskThreads) classify_mask(const ClassifyMask p) {
  static_assert(kThreads == 32 || kThreads == kMaskThreads);
  __shared__ int firsts[kMaskThreads / 32], ends[kMaskThreads / 32], counts[kMaskThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 b = kThreads == 32 ? i64{blockIdx.x} * (kMaskThreads / 32) + warp : i64{blockIdx.x};
  const int seq = static_cast<int>(p.mask.seq);
  int first = seq, end = 0, count = 0;
  if (b < p.batch) {
    const u8* valid = (p.call ? p.call->mask : p.mask.data) + b * p.mask.sequence;
    constexpr int kAhead = 4;  // loads on their way at a time
    for (i64 word0 = kThreads == 32 ? 0 : warp * kAhead; word0 < p.words; word0 += kThreads / 32 * kAhead) {
      u8 token[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const i64 k = (word0 + i) * 32 + lane;
        token[i] = k < seq ? valid[k * p.mask.token] : 0;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const u32 bits = __ballot_sync(kAllLanes, token[i] != 0);
        if (word0 + i >= p.words) break;
        if (lane == 0) p.bitmap[b * p.words + word0 + i] = bits;
        if (bits == 0) continue;
        const int base = static_cast<int>(word0 + i) * 32;
        first = min(first, base + __ffs(static_cast<int>(bits)) - 1);
        end = max(end, base + 32 - __clz(static_cast<int>(bits)));
        count += __popc(bits);
      }
    }
  }
  u32 found = 0;  // bit 0: not all valid; bit 1: not right-padded; bit 2: not left-padded
  if constexpr (kThreads != 32) {
    if (lane == 0) firsts[warp] = first, ends[warp] = end, counts[warp] = count;
    __syncthreads();
    count = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      first = min(first, firsts[w]);
      end = max(end, ends[w]);
      count += counts[w];
    }
  }
  if (b < p.batch) {
    if (count == 0) first = end = 0;
    if (kThreads == 32 ? lane == 0 : threadIdx.x == 0) p.keys[b] = {first, end, count, 0};
    const bool solid = count == end - first;
    found = (count != seq) | (solid && first == 0 ? 0 : 2) | (solid && (end == seq || count == 0) ? 0 : 4);
  }
  // The last block to finish gathers what all have found and leaves the state as it was, ready for the next call.
  __shared__ u32 in_block;
  if (threadIdx.x == 0) in_block = 0;
  __syncthreads();
  if (found && lane == 0) atomicOr(&in_block, found);
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (in_block) atomicOr(&p.state[0], in_block);
  __threadfence();
  if (atomicInc(&p.state[1], gridDim.x - 1) != gridDim.x - 1) return;
  const u32 all = atomicExch(&p.state[0], 0u);
  *p.kind = !(all & 1) ? kAllValid : !(all & 2) ? kRightPadded : !(all & 4) ? kLeftPadded : kAnyMask;
}

}  // namespace gnomon::kernels
