// The contract: an output u is right against the reference r when |u-r| <= abs or |u-r| <= rel*|r|, element by element.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor.hpp"

namespace gnomon {

struct Contract {
  double abs = 0.002;
  double rel = 0.02;
  double headroom = 0.9;  // a candidate passes when worst <= headroom; an answer is in contract when worst <= 1
  bool operator==(const Contract&) const = default;
};

// worst = max over elements of min(|u-r|/abs, |u-r|/(rel*|r|)); u == r counts 0. Infinite when u is not finite
// where r is finite, when u is not NaN where r is NaN, or u differs from an infinite r.
struct Verdict {
  double worst = 0;                  // in units of the contract's limit
  std::int64_t elements = 0;         // compared
  std::int64_t out_of_contract = 0;  // elements whose term exceeds 1
  std::int64_t first_bad = -1;       // flat row-major index of the first element out of contract
  double bad_value = 0, bad_reference = 0;
  std::string fault;  // nonempty: a failure that is no number (wrote past its end, threw, ...)

  bool passes(const Contract& contract) const { return fault.empty() && worst <= contract.headroom; }
};

// Compares every element in double precision. Shapes must be equal; dtypes may differ (f16/bf16 outputs are widened;
// for them half a unit in the last place of the stored type at r is taken off |u-r|, since a stored result cannot be nearer).
Verdict compare(const ConstTensorView& u, const ConstTensorView& r, const Contract& contract);

}  // namespace gnomon
