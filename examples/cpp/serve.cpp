// One engine shared by threads that bring batches of many lengths, as a server's workers do.
// A length that was never met is planned once; lengths near a planned one borrow its choices.
#include <cstdlib>
#include <gnomon/gnomon.hpp>
#include <iostream>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr std::int64_t width = 64;

std::vector<float> batch_of(std::int64_t sequences, std::int64_t tokens) {
  std::vector<float> x(static_cast<std::size_t>(sequences * tokens * width));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 2654435761u % 2001) / 1000.0f - 1.0f;
  return x;
}

void work(gnomon::Engine& engine, std::int64_t first_length, std::mutex& printing) {
  for (std::int64_t tokens = first_length; tokens <= 40; tokens += 8) {
    const std::array<std::int64_t, 3> shape = {4, tokens, width};
    const std::vector<float> x = batch_of(shape[0], shape[1]);
    std::vector<float> y(x.size());
    engine.forward(gnomon::tensor(x.data(), shape), gnomon::tensor(y.data(), shape));
    const std::lock_guard lock(printing);
    std::cout << "4 sequences of " << tokens << " tokens: y[0] = " << y[0] << '\n';
  }
}

}  // namespace

int main() try {
  const gnomon::Weights weights = gnomon::Weights::random("d64 h4 l2 f256", 1);
  gnomon::Engine engine(weights, gnomon::Options().set("budget", "1").set("total_budget", "4"));
  std::mutex printing;
  {
    std::vector<std::jthread> workers;
    for (const std::int64_t first_length : {20, 24}) {
      workers.emplace_back([&engine, &printing, first_length] { work(engine, first_length, printing); });
    }
  }
  std::cout << engine.stats() << '\n';
  return EXIT_SUCCESS;
} catch (const gnomon::Error& error) {
  std::cerr << "gnomon: " << error.what() << '\n';
  return EXIT_FAILURE;
}
