#include "cuda/oracle.hpp"

#include <algorithm>

#include "cuda/device_plan.hpp"
#include "cuda/plain_pass.hpp"

namespace gnomon::cuda {
namespace {

constexpr std::size_t kEnough = std::size_t{1} << 30;  // of scratch: larger blocks run no faster

}  // namespace

void oracle(Machine& machine, const Call& call) {
  const std::int64_t batch = call.input.shape[0], seq = call.input.shape[1];
  const StackConfig& config = machine.weights.config();
  std::int64_t sequences = batch, queries = seq;
  const auto fits = [&] { return PlainPass::scratch_bytes(config, sequences, seq, queries) <= kEnough; };
  while (!fits() && sequences > 1) sequences = (sequences + 1) / 2;
  while (!fits() && queries > 64) queries = (queries + 1) / 2;
  SlicedPass pass(batch, sequences, [&](std::int64_t count) {
    return std::make_unique<PlainPass>(machine, count, seq, queries, call.mask.has_value());
  });
  const DeviceBuffer scratch(pass.scratch_bytes());
  const auto stream = static_cast<CUstream>(call.stream);
  const BorderLayout layout = BorderLayout::of(call);
  for (std::int64_t slice = 0; slice < pass.slices(); ++slice)
    pass.pass(slice).launch(stream, {.data = scratch.data()}, pass.part(call, slice), layout);
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
}

}  // namespace gnomon::cuda
