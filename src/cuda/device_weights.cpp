#include "cuda/device_weights.hpp"

#include "core/error.hpp"
#include "cuda/rows.hpp"

namespace gnomon::cuda {
namespace {

constexpr std::int64_t kAlignment = 128;  // elements: 256 bytes of the narrowest type

class LayoutMaker {
 public:
  std::int64_t place(std::size_t elements) {
    if (elements == 0) return -1;
    const std::int64_t at = end_;
    end_ = (at + static_cast<std::int64_t>(elements) + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  LinearAt place(const LinearWeights& w, std::size_t copies = 1) {
    return {place(copies * w.weight.size()), place(copies * w.bias.size())};
  }
  NormAt place(const NormWeights& w) { return {place(w.weight.size()), place(w.bias.size())}; }
  std::int64_t end() const { return end_; }

 private:
  std::int64_t end_ = 0;
};

}  // namespace

WeightsLayout::WeightsLayout(const Weights& weights) {
  LayoutMaker maker;
  for (const LayerWeights& layer : weights.layers()) {
    LayerAt at;
    at.qkv = maker.place(layer.q_proj, 3);
    at.out = maker.place(layer.out_proj);
    at.fc1 = maker.place(layer.fc1);
    at.fc2 = maker.place(layer.fc2);
    at.norm1 = maker.place(layer.norm1);
    at.norm2 = maker.place(layer.norm2);
    layers.push_back(at);
  }
  if (const NormWeights* norm = weights.final_norm()) final_norm = maker.place(*norm);
  elements = maker.end();
}

std::shared_ptr<const WeightsCopy> DeviceWeights::upload(CUstream stream) const {
  auto made = std::make_shared<WeightsCopy>(static_cast<std::size_t>(layout_.elements) * sizeof(float), DType::f32);
  // What lies between tensors is read when narrow copies are made.
  check(driver().cuMemsetD8Async(made->buffer().address(), 0, made->buffer().bytes(), stream), "cuMemsetD8Async");
  const auto put = [&](std::span<const float> values, std::int64_t at) {
    if (values.empty()) return;
    check(driver().cuMemcpyHtoDAsync(made->buffer().address() + static_cast<CUdeviceptr>(at) * sizeof(float),
                                     values.data(), values.size_bytes(), stream),
          "cuMemcpyHtoDAsync");
  };
  for (std::size_t i = 0; i < layout_.layers.size(); ++i) {
    const LayerWeights& w = weights_->layers()[i];
    const LayerAt& at = layout_.layers[i];
    std::int64_t part = 0;
    for (const LinearWeights* one : {&w.q_proj, &w.k_proj, &w.v_proj}) {
      put(one->weight, at.qkv.weight + part * one->out * one->in);
      put(one->bias, at.qkv.bias + part * one->out);
      ++part;
    }
    const auto linear = [&](const LinearWeights& from, const LinearAt& to) {
      put(from.weight, to.weight);
      put(from.bias, to.bias);
    };
    linear(w.out_proj, at.out);
    linear(w.fc1, at.fc1);
    linear(w.fc2, at.fc2);
    put(w.norm1.weight, at.norm1.weight);
    put(w.norm1.bias, at.norm1.bias);
    put(w.norm2.weight, at.norm2.weight);
    put(w.norm2.bias, at.norm2.bias);
  }
  if (const NormWeights* norm = weights_->final_norm()) {
    put(norm->weight, layout_.final_norm.weight);
    put(norm->bias, layout_.final_norm.bias);
  }
  return made;
}

std::shared_ptr<const WeightsCopy> DeviceWeights::copy(DType type, KernelLibrary& kernels, CUstream stream) {
  const std::lock_guard lock(mutex_);
  auto& wide = copies_[DType::f32];
  if (!wide) {
    wide = upload(stream);
    check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  if (type == DType::f32) return wide;
  auto& narrow = copies_[type];
  if (!narrow) {
    auto made = std::make_shared<WeightsCopy>(static_cast<std::size_t>(layout_.elements) * size_of(type), type);
    auto convert = load_rows(kernels, DType::f32, type, layout_.elements / kAlignment, kAlignment, 8);
    convert.params.from = wide->at(0);
    convert.params.narrow = made->buffer().data();
    convert.run(stream);
    check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
    narrow = made;
  }
  return narrow;
}

std::int64_t DeviceWeights::bytes() const {
  const std::lock_guard lock(mutex_);
  std::int64_t sum = 0;
  for (const auto& [type, copy] : copies_) sum += copy ? static_cast<std::int64_t>(copy->buffer().bytes()) : 0;
  return sum;
}

void DeviceWeights::trim() {
  const std::lock_guard lock(mutex_);
  std::erase_if(copies_, [](const auto& entry) { return entry.first != DType::f32 && entry.second.use_count() <= 1; });
}

}  // namespace gnomon::cuda
