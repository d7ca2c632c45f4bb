#include "cuda/choice_facts.hpp"

#include <fmt/format.h>

#include "cuda/resident.hpp"

namespace gnomon::cuda {
namespace {

double product_peak(Precision precision, const DeviceProperties& p) {
  // Multiply-adds of one multiprocessor in a clock: tensor cores in 16 bits and tf32, FMA units in fp32.
  double rate = 128;
  if (precision != Precision::fp32) {
    rate = p.major == 8 && p.minor > 0 ? 512 : p.major == 8 ? 1024 : p.major == 12 ? 512 : p.major == 9 ? 2048 : 4096;
    if (precision == Precision::tf32) rate /= 2;
  }
  return 2 * rate * p.multiprocessors * p.clock_hz;
}

// Of a whole pass: each sublayer's operations at the peak of their precision.
double pass_peak(const Problem& problem, const Choices& c, const DeviceProperties& device) {
  const double all = flops(problem), ffn = ffn_flops(problem);
  return all /
         ((all - ffn) / product_peak(c.precision, device) + ffn / product_peak(precision_of(c, Sublayer::ffn), device));
}

}  // namespace

bool approximates_activation(const StackConfig& config, const Choices& c) {
  return c.path == Path::stack && c.gemm_gelu && config.activation == Activation::gelu_erf;
}

bool has_paired_activation(const Choices& c) {
  const auto form = ResidentForm::parse(c.tile);
  return c.path == Path::resident && form && form->paired_activation;
}

// Products at half of the FMA units' peak, passes at half of the memory's, and five microseconds for each of some forty
// launches in a layer.
double plain_seconds(const Problem& problem, const DeviceProperties& device) {
  return plain_flops(problem) / (0.5 * product_peak(Precision::fp32, device)) +
         plain_bytes(problem) / (0.5 * device.memory_bytes_per_second) +
         static_cast<double>(problem.config.layers) * 40 * 5e-6;
}

std::vector<std::string> approximations(const StackConfig& config, const Choices& c) {
  std::vector<std::string> labels;
  const bool mixed = precision_of(c, Sublayer::ffn) != c.precision;
  const auto label = [&](Precision precision, const char* products, bool attends) {
    if (precision == Precision::fp32) return;
    labels.push_back(fmt::format("{} products{} in {}", products,
                                 attends && is_narrow(precision) ? " and attention" : "", name_of(precision)));
  };
  label(c.precision, mixed ? "attention's" : "all", true);
  if (c.packed_residual)
    labels.push_back(
        fmt::format("the residual stream in {} significant bits", c.precision == Precision::fp16 ? 19 : 16));
  if (mixed) label(precision_of(c, Sublayer::ffn), "the FFN's", false);
  if (c.path == Path::resident && config.activation != Activation::relu)
    labels.push_back("GELU by the hardware's tanh");
  if (has_paired_activation(c)) labels.push_back("the activation in fp16");
  if (approximates_activation(config, c)) labels.push_back("GELU in its tanh form in place of erf");
  return labels;
}

int complexity(const Choices& c) {
  int parts = static_cast<int>(c.path) + has_paired_activation(c);
  for (const bool on : {c.packed_residual, c.fused_attention, c.causal_skip, c.mask_elision, c.fused_qkv, c.fused_norm,
                        c.gemm_gelu, c.graph})
    parts += on;
  for (const int algorithm : {c.algo_qkv, c.algo_out, c.algo_fc1, c.algo_fc2}) parts += algorithm != 0;
  parts += c.ffn_precision.has_value() + (c.slices != 0) + (c.tile != "first") + c.compact;
  return parts + 50 * (static_cast<int>(c.precision) + static_cast<int>(precision_of(c, Sublayer::ffn)));
}

std::string bound(const Problem& problem, const Choices& c, double seconds, const DeviceProperties& device) {
  const double rate = flops(problem) / seconds, peak = pass_peak(problem, c, device);
  const double bytes = 2.0 * static_cast<double>(problem.elements()) * static_cast<double>(size_of(problem.dtype));
  const std::string figures = fmt::format(
      "{:.1f} of {:.0f} TFLOP/s by the device's stated clock ({:.0f} %); input and output move at {:.0f} GB/s",
      rate * 1e-12, peak * 1e-12, 100 * rate / peak, bytes / seconds * 1e-9);
  if (seconds < 100e-6) return "latency (launches, short kernels): " + figures;
  if (rate >= 0.5 * peak) return "arithmetic: " + figures;
  return "memory and elementwise work between the products: " + figures;
}

}  // namespace gnomon::cuda
