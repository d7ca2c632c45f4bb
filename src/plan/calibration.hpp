// When the whole call is too large to plan on, a prefix of its batch (or of a causal sequence) stands for it.
#pragma once

#include "plan/backend.hpp"

namespace gnomon {

// The call restricted to its first `batch` sequences and their first `seq` tokens: shapes shrink, strides stay.
Problem prefix_of(const Problem& problem, std::int64_t batch, std::int64_t seq);
Call prefix_of(const Call& call, std::int64_t batch, std::int64_t seq);

// The largest prefix whose plain pass should take at most `seconds`: the whole; else a power of two of sequences; else,
// when causal (rows depend on earlier rows only), one sequence's first tokens.
Problem part_within(const Backend& backend, const Problem& problem, double seconds);

// `part`, or the smallest one with more of `whole`'s sequences that tells how `candidate` runs on the whole.
Problem part_showing(const Backend& backend, const Problem& whole, Problem part, const Candidate& candidate);

// The next smaller prefix, for when memory fails; false when there is none.
bool shrink(Problem& part);

}  // namespace gnomon
