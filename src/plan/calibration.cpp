#include "plan/calibration.hpp"

#include <algorithm>
#include <bit>

namespace gnomon {
namespace {

std::int64_t lower_power_of_two(std::int64_t value) {  // the largest power of two below value
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(value - 1)));
}

}  // namespace

Problem prefix_of(const Problem& problem, std::int64_t batch, std::int64_t seq) {
  Problem part = problem;
  part.batch = batch;
  part.seq = seq;
  return part;
}

Call prefix_of(const Call& call, std::int64_t batch, std::int64_t seq) {
  Call part = call;
  part.input.shape[0] = part.output.shape[0] = batch;
  part.input.shape[1] = part.output.shape[1] = seq;
  if (part.mask) part.mask->shape = {batch, seq};
  return part;
}

bool shrink(Problem& part) {
  if (part.batch > 1) {
    part.batch = lower_power_of_two(part.batch);
  } else if (part.config.causal && part.seq > 1) {
    part.seq = lower_power_of_two(part.seq);
  } else {
    return false;
  }
  return true;
}

Problem part_within(const Backend& backend, const Problem& problem, double seconds) {
  Problem part = problem;
  while (backend.estimate_plain_seconds(part) > seconds && shrink(part)) {
  }
  return part;
}

Problem part_showing(const Backend& backend, const Problem& whole, Problem part, const Candidate& candidate) {
  while (part.batch < whole.batch && backend.unlike_whole(part, whole, candidate)) {
    part.batch = std::min(2 * part.batch, whole.batch);
  }
  return part;
}

}  // namespace gnomon
