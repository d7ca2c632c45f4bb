#include "cli/workload.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <thread>

#include "core/fingerprint.hpp"
#include "core/half.hpp"

namespace gnomon::cli {
namespace {

// splitmix64 as a function of the index: any part of the sequence can be made alone, so threads do not change the
// numbers.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  return mix64(seed * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u);
}

// Box-Muller: two normals from one draw.
std::pair<float, float> normals(std::uint64_t bits) {
  const float u = (static_cast<float>(bits >> 40) + 1.0f) * 0x1p-24f;  // in (0, 1]
  const float angle = static_cast<float>(bits & 0xffffffu) * (0x1p-23f * std::numbers::pi_v<float>);
  const float radius = std::sqrt(-2.0f * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

void store(std::byte* data, DType dtype, std::int64_t index, float value) {
  if (dtype == DType::f32) {
    std::memcpy(data + index * 4, &value, 4);
    return;
  }
  const std::uint16_t bits = dtype == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
  std::memcpy(data + index * 2, &bits, 2);
}

void fill_pairs(std::byte* data, const Problem& problem, std::uint64_t seed, std::int64_t begin, std::int64_t end) {
  for (std::int64_t pair = begin; pair < end; ++pair) {
    const auto [first, second] = normals(random_bits(seed, static_cast<std::uint64_t>(pair)));
    store(data, problem.dtype, 2 * pair, first);
    if (2 * pair + 1 < problem.elements()) store(data, problem.dtype, 2 * pair + 1, second);
  }
}

void fill(std::byte* data, const Problem& problem, std::uint64_t seed) {
  const std::int64_t pairs = (problem.elements() + 1) / 2;
  constexpr std::int64_t worth_a_thread = 1 << 18;
  const std::int64_t parts =
      std::clamp<std::int64_t>(pairs / worth_a_thread, 1, std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::jthread> threads;
  for (std::int64_t part = 0; part < parts; ++part) {
    threads.emplace_back(fill_pairs, data, std::cref(problem), seed, pairs * part / parts, pairs * (part + 1) / parts);
  }
}

bool valid(MaskKind kind, const Problem& problem, std::uint64_t seed, std::int64_t b, std::int64_t s) {
  const auto length = 1 + static_cast<std::int64_t>(random_bits(seed, static_cast<std::uint64_t>(b)) %
                                                    static_cast<std::uint64_t>(problem.seq));
  switch (kind) {
    case MaskKind::right:
      return s < length;
    case MaskKind::left:
      return s >= problem.seq - length;
    case MaskKind::holes:
      return random_bits(seed, static_cast<std::uint64_t>(b * problem.seq + s)) % 4 != 0;
    case MaskKind::all_valid:
      return true;
    case MaskKind::one_empty:
      return b != problem.batch / 2;
  }
  return true;
}

}  // namespace

std::string_view name_of(MaskKind kind) {
  switch (kind) {
    case MaskKind::right:
      return "right padding";
    case MaskKind::left:
      return "left padding";
    case MaskKind::holes:
      return "holes";
    case MaskKind::all_valid:
      return "all valid";
    case MaskKind::one_empty:
      return "one sequence empty";
  }
  return "?";
}

Weights weights_of(const std::string& file, const StackConfig& config, std::uint64_t seed) {
  return file.empty() ? Weights::random(config, seed) : Weights::from_safetensors(file, config);
}

std::size_t Workload::bytes(const Problem& problem) {
  return static_cast<std::size_t>(problem.elements()) * size_of(problem.dtype);
}

Workload::Workload(const Problem& problem, std::uint64_t seed, MaskKind kind)
    : problem_(problem), input_(bytes(problem)), output_(problem.inplace ? 0 : bytes(problem)) {
  fill(input_.data(), problem, seed);
  if (problem.mask) mask_.resize(static_cast<std::size_t>(problem.tokens()));
  for (std::int64_t token = 0; problem.mask && token < problem.tokens(); ++token) {
    mask_[static_cast<std::size_t>(token)] = valid(kind, problem, seed, token / problem.seq, token % problem.seq);
  }
  call_ = DeviceCall(problem.device, on_host());
}

Call Workload::on_host() {
  const std::array<std::int64_t, 3> shape{problem_.batch, problem_.seq, problem_.config.d_model};
  Call call;
  call.input = ConstTensorView::contiguous(input_.data(), problem_.dtype, shape);
  call.output = TensorView::contiguous((problem_.inplace ? input_ : output_).data(), problem_.dtype, shape);
  if (problem_.mask) call.mask = MaskView{mask_.data(), {problem_.batch, problem_.seq}, {problem_.seq, 1}};
  return call;
}

}  // namespace gnomon::cli
