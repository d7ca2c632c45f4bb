#include "core/problem.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/grammar.hpp"
#include "core/overlap.hpp"
#include "core/text_list.hpp"

namespace gnomon {
namespace {

constexpr std::string_view kWhat = "problem";

bool is_device(std::string_view device) {
  if (device == "cpu") return true;
  if (!device.starts_with("cuda:")) return false;
  const std::string_view digits = device.substr(5);
  // At most four digits, without leading zeros: one device has one name.
  return !digits.empty() && digits.size() <= 4 && digits.find_first_not_of("0123456789") == std::string_view::npos &&
         (digits == "0" || digits.front() != '0');
}

grammar::Rule device_rule(std::string& device) {
  return {"@cpu|@cuda:<n>", [&device](std::string_view word) {
            if (!word.starts_with('@')) return false;
            if (!is_device(word.substr(1))) throw_caller("no such kind of device");
            device = word.substr(1);
            return true;
          }};
}

std::vector<grammar::Rule> rules(Problem& problem) {
  using namespace grammar;
  std::vector<Rule> all = {integer("b", problem.batch), integer("s", problem.seq)};
  for (Rule& rule : stack_config_rules(problem.config)) all.push_back(std::move(rule));
  all.push_back(choice<DType>({{"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}}, problem.dtype));
  all.push_back(flag("mask", problem.mask, true));
  all.push_back(flag("inplace", problem.inplace, true));
  all.push_back(real("abs", problem.contract.abs));
  all.push_back(real("rel", problem.contract.rel));
  all.push_back(real("headroom", problem.contract.headroom));
  all.push_back(device_rule(problem.device));
  return all;
}

void check(const Contract& contract) {
  for (const auto& [name, value] : {std::pair{"abs", contract.abs}, {"rel", contract.rel}}) {
    if (!(std::isfinite(value) && value >= 0))
      throw_caller("{}: {} is {}, it must be finite and >= 0", kWhat, name, value);
  }
  if (!(std::isfinite(contract.headroom) && contract.headroom > 0)) {
    throw_caller("{}: headroom is {}, it must be finite and above 0", kWhat, contract.headroom);
  }
}

template <typename View>
StridedBytes bytes_of(const View& view, std::int64_t element) {
  StridedBytes box{.data = view.data, .element = element};
  for (std::size_t k = 0; k < view.shape.size(); ++k) {
    box.shape[k] = view.shape[k];
    if (view.shape[k] <= 1) continue;  // its stride is never walked
    if (__builtin_mul_overflow(view.strides[k], element, &box.strides[k])) {
      throw_caller("a stride of {} elements is too long", view.strides[k]);
    }
  }
  return box;
}

// A stride along a dimension of one element is never walked, so it does not tell two views apart.
bool same_elements(const ConstTensorView& input, const TensorView& output) {
  if (input.data != output.data) return false;
  for (std::size_t k = 0; k < input.shape.size(); ++k) {
    if (input.shape[k] > 1 && input.strides[k] != output.strides[k]) return false;
  }
  return true;
}

void check_forms(const StackConfig& config, const Call& call) {
  const auto& in = call.input.shape;
  if (in[0] < 0 || in[1] < 0) throw_caller("the input's shape {} has a negative size", shape_text(in));
  if (in[2] != config.d_model) {
    throw_caller("expected an input [B, S, {}] (d_model of the weights), got {}", config.d_model, shape_text(in));
  }
  if (call.output.shape != in) {
    throw_caller("expected an output of the input's shape {}, got {}", shape_text(in), shape_text(call.output.shape));
  }
  if (call.output.dtype != call.input.dtype) {
    throw_caller("expected an output of the input's type {}, got {}", name_of(call.input.dtype),
                 name_of(call.output.dtype));
  }
  if (call.input.dtype == DType::f64) throw_caller("an f64 input is not supported: convert it to f32, f16 or bf16");
  if (call.mask && (call.mask->shape[0] != in[0] || call.mask->shape[1] != in[1])) {
    throw_caller("expected a padding mask [{}, {}] of bytes (nonzero = valid token), got {}", in[0], in[1],
                 shape_text(call.mask->shape));
  }
}

void check_memory(const Call& call, bool inplace) {
  if (!call.input.data || !call.output.data || (call.mask && !call.mask->data)) {
    throw_caller("the address of the {} is null", !call.input.data ? "input" : !call.output.data ? "output" : "mask");
  }
  const auto element = static_cast<std::int64_t>(size_of(call.input.dtype));
  const StridedBytes input = bytes_of(call.input, element), output = bytes_of(call.output, element);
  range_of(input);  // both must be addressable before anything is asked about them
  range_of(output);
  if (overlaps_itself(output)) {
    throw_caller("two elements of the output share an address: shape {}, strides {}; give it a layout of its own",
                 shape_text(call.output.shape), shape_text(call.output.strides));
  }
  if (!inplace && overlaps(input, output)) {
    throw_caller(
        "input and output overlap without being the same tensor (strides {} and {}): make them equal or disjoint",
        shape_text(call.input.strides), shape_text(call.output.strides));
  }
  if (call.mask && overlaps(bytes_of(*call.mask, 1), output)) throw_caller("the mask and the output overlap");
}

}  // namespace

double linear_flops(const Problem& problem) {
  const double d = static_cast<double>(problem.config.d_model);
  return 2.0 * static_cast<double>(problem.tokens()) * static_cast<double>(problem.config.layers) * 4 * d * d +
         ffn_flops(problem);
}

double ffn_flops(const Problem& problem) {
  const double d = static_cast<double>(problem.config.d_model), f = static_cast<double>(problem.config.d_ff);
  return 2.0 * static_cast<double>(problem.tokens()) * static_cast<double>(problem.config.layers) * 2 * d * f;
}

double flops(const Problem& problem) {
  const double s = static_cast<double>(problem.seq);
  const double pairs = problem.config.causal ? s * (s + 1) / 2 : s * s;  // query-key pairs that are visible
  const double products = 2;                                             // q*k^T and p*v
  return linear_flops(problem) + 2.0 * products * pairs * static_cast<double>(problem.batch) *
                                     static_cast<double>(problem.config.layers) *
                                     static_cast<double>(problem.config.d_model);
}

double plain_flops(const Problem& problem) {
  Problem full = problem;
  full.config.causal = false;
  return flops(full);
}

double plain_bytes(const Problem& problem) {
  const StackConfig& c = problem.config;
  const double scores = static_cast<double>(problem.batch * c.n_heads) * static_cast<double>(problem.seq) *
                        static_cast<double>(problem.seq);
  return static_cast<double>(c.layers) * sizeof(float) * (12 * scores + 40 * static_cast<double>(problem.elements()));
}

void check(const Problem& problem) {
  check(problem.config);
  check(problem.contract);
  if (problem.batch < 0 || problem.seq < 0) {
    throw_caller("{}: batch is {} and seq is {}, neither may be negative", kWhat, problem.batch, problem.seq);
  }
  if (problem.dtype == DType::f64) throw_caller("{}: f64 is not supported: use f32, f16 or bf16", kWhat);
  if (!is_device(problem.device)) throw_caller("{}: device '{}' is neither cpu nor cuda:<n>", kWhat, problem.device);
  // The largest tensor that any path forms, scores included, must have byte offsets that fit 63 bits.
  const double tokens = static_cast<double>(problem.batch) * static_cast<double>(problem.seq);
  const StackConfig& c = problem.config;
  const double wide = std::max({3.0 * static_cast<double>(c.d_model), static_cast<double>(c.d_ff),
                                static_cast<double>(c.n_heads) * static_cast<double>(problem.seq)});
  if (tokens * wide * sizeof(double) > static_cast<double>(std::numeric_limits<std::int64_t>::max() / 2)) {
    throw_caller("{}: b{} s{} with d{} h{} f{} needs tensors of {:.3g} elements, more than can be addressed", kWhat,
                 problem.batch, problem.seq, c.d_model, c.n_heads, c.d_ff, tokens * wide);
  }
}

std::string to_string(const Problem& problem) {
  std::string text =
      fmt::format("b{} s{} {} {}", problem.batch, problem.seq, to_string(problem.config), name_of(problem.dtype));
  if (problem.mask) text += " mask";
  if (problem.inplace) text += " inplace";
  const Contract usual;
  if (problem.contract.abs != usual.abs) text += fmt::format(" abs={}", problem.contract.abs);
  if (problem.contract.rel != usual.rel) text += fmt::format(" rel={}", problem.contract.rel);
  if (problem.contract.headroom != usual.headroom) text += fmt::format(" headroom={}", problem.contract.headroom);
  return text + " @" + problem.device;
}

Problem parse_problem(std::string_view text) {
  Problem problem;
  grammar::parse(text, kWhat, rules(problem));
  check(problem);
  return problem;
}

Problem problem_of(const StackConfig& config, const Call& call, const Contract& contract, std::string device) {
  check_forms(config, call);
  Problem problem{.batch = call.input.shape[0],
                  .seq = call.input.shape[1],
                  .config = config,
                  .dtype = call.input.dtype,
                  .mask = call.mask.has_value(),
                  .inplace = same_elements(call.input, call.output),
                  .contract = contract,
                  .device = std::move(device)};
  check(problem);
  if (problem.elements() > 0) check_memory(call, problem.inplace);
  return problem;
}

}  // namespace gnomon
