#include "support/oracle.hpp"

#include <cmath>
#include <limits>

#include "support/tensors.hpp"

namespace gnomon::test {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;  // the tokens of one sequence

Row linear(const Row& x, const LinearWeights& w) {
  Row y(static_cast<std::size_t>(w.out));
  for (std::size_t o = 0; o < y.size(); ++o) {
    double sum = w.bias.empty() ? 0.0 : w.bias[o];
    for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * w.weight[o * x.size() + i];
    y[o] = sum;
  }
  return y;
}

Rows linear(const Rows& x, const LinearWeights& w) {
  Rows y;
  for (const Row& row : x) y.push_back(linear(row, w));
  return y;
}

double activate(double x, Activation activation) {
  switch (activation) {
    case Activation::gelu_erf:
      return gelu_erf(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::relu:
      return x < 0 ? 0.0 : x;  // NaN stays NaN
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// One head of one query: softmax over the seen keys, then the weighted sum of their values.
void attend(const Row& q, const Rows& keys, const Rows& values, const std::vector<std::size_t>& seen, std::size_t from,
            std::size_t head_dim, Row& out) {
  Row scores;
  double largest = -std::numeric_limits<double>::infinity();
  for (const std::size_t key : seen) {
    double dot = 0;
    for (std::size_t i = from; i < from + head_dim; ++i) dot += q[i] * keys[key][i];
    scores.push_back(dot / std::sqrt(static_cast<double>(head_dim)));
    if (scores.back() > largest) largest = scores.back();
  }
  double total = 0;
  for (double& score : scores) {
    score = std::exp(score - largest);
    total += score;
  }
  for (std::size_t i = from; i < from + head_dim; ++i) {
    out[i] = 0;
    for (std::size_t n = 0; n < seen.size(); ++n) out[i] += scores[n] / total * values[seen[n]][i];
  }
}

Rows attention(const Rows& x, const LayerWeights& layer, const StackConfig& config, const std::vector<bool>& valid) {
  const Rows q = linear(x, layer.q_proj), k = linear(x, layer.k_proj), v = linear(x, layer.v_proj);
  const auto head_dim = static_cast<std::size_t>(config.head_dim());
  Rows mixed;
  for (std::size_t query = 0; query < x.size(); ++query) {
    std::vector<std::size_t> seen;
    for (std::size_t key = 0; key < x.size(); ++key) {
      if (valid[key] && (!config.causal || key <= query)) seen.push_back(key);
    }
    Row row(x[query].size());
    for (std::size_t from = 0; from < row.size(); from += head_dim) attend(q[query], k, v, seen, from, head_dim, row);
    mixed.push_back(row);
  }
  return linear(mixed, layer.out_proj);
}

Rows feed_forward(const Rows& x, const LayerWeights& layer, const StackConfig& config) {
  Rows hidden = linear(x, layer.fc1);
  for (Row& row : hidden) {
    for (double& value : row) value = activate(value, config.activation);
  }
  return linear(hidden, layer.fc2);
}

Rows normalised(const Rows& x, const NormWeights& norm, double eps) {
  Rows y;
  for (const Row& row : x) y.push_back(layer_norm(row, norm, eps));
  return y;
}

Rows sum(const Rows& a, const Rows& b) {
  Rows y = a;
  for (std::size_t t = 0; t < y.size(); ++t) {
    for (std::size_t i = 0; i < y[t].size(); ++i) y[t][i] += b[t][i];
  }
  return y;
}

Rows run_layer(const Rows& x, const LayerWeights& layer, const StackConfig& config, const std::vector<bool>& valid) {
  if (config.norm == NormPlacement::post) {
    const Rows attended = normalised(sum(x, attention(x, layer, config, valid)), layer.norm1, config.eps);
    return normalised(sum(attended, feed_forward(attended, layer, config)), layer.norm2, config.eps);
  }
  const Rows attended = sum(x, attention(normalised(x, layer.norm1, config.eps), layer, config, valid));
  return sum(attended, feed_forward(normalised(attended, layer.norm2, config.eps), layer, config));
}

}  // namespace

double gelu_erf(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

std::vector<double> layer_norm(const std::vector<double>& row, const NormWeights& norm, double eps) {
  double mean = 0, variance = 0;
  for (const double value : row) mean += value / static_cast<double>(row.size());
  for (const double value : row) variance += (value - mean) * (value - mean) / static_cast<double>(row.size());
  std::vector<double> y(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) {
    y[i] = (row[i] - mean) / std::sqrt(variance + eps) * norm.weight[i] + (norm.bias.empty() ? 0.0 : norm.bias[i]);
  }
  return y;
}

std::vector<double> oracle(const Weights& weights, const ConstTensorView& input, const std::optional<MaskView>& mask) {
  const StackConfig& config = weights.config();
  std::vector<double> output;
  for (std::int64_t b = 0; b < input.shape[0]; ++b) {
    Rows x(static_cast<std::size_t>(input.shape[1]), Row(static_cast<std::size_t>(config.d_model)));
    std::vector<bool> valid(x.size(), true);
    for (std::size_t s = 0; s < x.size(); ++s) {
      const auto t = static_cast<std::int64_t>(s);
      for (std::size_t i = 0; i < x[s].size(); ++i) x[s][i] = value_at(input, b, t, static_cast<std::int64_t>(i));
      if (mask) valid[s] = mask->data[b * mask->strides[0] + t * mask->strides[1]] != 0;
    }
    for (const LayerWeights& layer : weights.layers()) x = run_layer(x, layer, config, valid);
    if (const NormWeights* norm = weights.final_norm()) x = normalised(x, *norm, config.eps);
    for (const Row& row : x) output.insert(output.end(), row.begin(), row.end());
  }
  return output;
}

}  // namespace gnomon::test
