// The slow, plain forward pass in double precision, straight from the formulas: what every path is judged against in
// tests. It shares no code with src/.
#pragma once

#include <vector>

#include "core/tensor.hpp"
#include "core/weights.hpp"

namespace gnomon::test {

// [B, S, d_model], row-major. A query sees a key when the key's token is valid and, in a causal stack, not later than
// the query; an unseen key adds nothing even when it holds NaN; a query that sees nothing gets attention output 0.
std::vector<double> oracle(const Weights& weights, const ConstTensorView& input, const std::optional<MaskView>& mask);

// The pieces, for tests that pin each to known values.
double gelu_erf(double x);
double gelu_tanh(double x);
std::vector<double> layer_norm(const std::vector<double>& row, const NormWeights& norm, double eps);

}  // namespace gnomon::test
