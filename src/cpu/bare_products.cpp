#include "cpu/bare_products.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/memory.hpp"
#include "core/weights.hpp"
#include "cpu/aligned_buffer.hpp"
#include "cpu/product.hpp"
#include "cpu/team.hpp"
#include "plan/clock.hpp"
#include "plan/statistics.hpp"

namespace gnomon::cpu {
namespace {

// One projection over all rows, shared between the threads.
class BareProduct {
 public:
  BareProduct(const std::vector<const LinearWeights*>& parts, WeightPacks& packs, std::int64_t rows, int threads)
      : rows_(rows), share_((rows + threads - 1) / threads), threads_(threads), in_(parts.front()->in) {
    for (const LinearWeights* part : parts) out_ += part->out;
    for (const std::int64_t m : {share_, rows % share_}) {
      if (m > 0) products_.emplace_back(packs, parts, ProductSpec{.rows = m, .ldx = in_, .ldy = out_}, threads);
    }
  }
  double flops() const { return 2.0 * static_cast<double>(rows_ * in_ * out_); }
  void run(const float* x, float* y) const {
    ForkTeam{ThreadPool::shared(), threads_}.each((rows_ + share_ - 1) / share_, [&](int worker, std::int64_t i) {
      const Product& product = (i + 1) * share_ <= rows_ ? products_.front() : products_.back();
      product.run(worker, x + i * share_ * in_, y + i * share_ * out_);
    });
  }

 private:
  std::int64_t rows_, share_;
  int threads_;
  std::int64_t in_, out_ = 0;
  std::vector<Product> products_;
};

}  // namespace

Quartiles measure_bare_products(const Problem& problem, int threads, double budget_seconds) {
  StackConfig one = problem.config;
  one.layers = 1;
  const Weights weights = Weights::random(one, /*seed=*/1);
  const LayerWeights& w = weights.layers().front();
  const std::int64_t rows = problem.tokens();
  WeightPacks packs;
  std::vector<BareProduct> products;
  products.emplace_back(std::vector{&w.q_proj, &w.k_proj, &w.v_proj}, packs, rows, threads);
  products.emplace_back(std::vector{&w.out_proj}, packs, rows, threads);
  products.emplace_back(std::vector{&w.fc1}, packs, rows, threads);
  products.emplace_back(std::vector{&w.fc2}, packs, rows, threads);

  const std::int64_t widest = std::max({one.d_ff, 3 * one.d_model});
  const auto floats = static_cast<std::size_t>(rows * widest);
  if (static_cast<std::int64_t>(2 * floats * sizeof(float)) > available_memory().bytes) return {};
  const AlignedBuffer x(floats * sizeof(float)), y(floats * sizeof(float));
  auto* in = reinterpret_cast<float*>(x.data());
  // Not zeros: they can run faster than data does. The pattern's period is prime to every row length.
  for (std::size_t i = 0; i < floats; ++i) in[i] = static_cast<float>(i % 251) * 0.01f - 1.25f;

  double flops = 0;
  for (const BareProduct& product : products) flops += product.flops();
  std::vector<double> rates;
  Clock& clock = steady_clock();
  const double end = clock.now() + budget_seconds;
  for (int round = 0; round < 2 || (clock.now() < end && rates.size() < 101); ++round) {
    const double start = clock.now();
    for (const BareProduct& product : products) product.run(in, reinterpret_cast<float*>(y.data()));
    if (round > 0) rates.push_back(flops / (clock.now() - start));  // the first round warms up
  }
  return quartiles(std::move(rates));
}

double product_peak(int threads) {
  static std::mutex lock;
  static std::map<int, double> peaks;
  std::lock_guard guard(lock);
  double& peak = peaks[threads];
  if (peak == 0) {
    // 128 rows a thread of a 512 x 512 product: 1.5 MiB of operands, in the caches of any CPU of interest.
    const StackConfig c{.layers = 1, .d_model = 512, .n_heads = 8, .d_ff = 512};
    peak = measure_bare_products({.batch = threads, .seq = 128, .config = c}, threads, 0.02).median;
  }
  return peak;
}

}  // namespace gnomon::cpu
