// The weights on the device: all of them in one allocation for each element type, laid out alike, so that a narrower
// copy is one conversion. Q, K and V are adjacent: one [3d, d] matrix, or three.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/dtype.hpp"
#include "core/weights.hpp"
#include "cuda/device_buffer.hpp"
#include "cuda/kernel.hpp"

namespace gnomon::cuda {

// Offsets in elements; -1: there is none.
struct LinearAt {
  std::int64_t weight = -1, bias = -1;
};
struct NormAt {
  std::int64_t weight = -1, bias = -1;
};
struct LayerAt {
  LinearAt qkv, out, fc1, fc2;
  NormAt norm1, norm2;
};
struct WeightsLayout {
  std::vector<LayerAt> layers;
  NormAt final_norm;
  std::int64_t elements = 0;

  explicit WeightsLayout(const Weights& weights);
};

// One element type's copy; plans keep it alive.
class WeightsCopy {
 public:
  WeightsCopy(std::size_t bytes, DType type) : buffer_(bytes), type_(type) {}
  const void* at(std::int64_t offset) const {
    return offset < 0 ? nullptr : buffer_.data() + offset * static_cast<std::int64_t>(size_of(type_));
  }
  const float* floats(std::int64_t offset) const { return static_cast<const float*>(at(offset)); }
  const DeviceBuffer& buffer() const { return buffer_; }

 private:
  DeviceBuffer buffer_;
  DType type_;
};

class DeviceWeights {
 public:
  explicit DeviceWeights(std::shared_ptr<const Weights> weights) : weights_(std::move(weights)), layout_(*weights_) {}

  const StackConfig& config() const { return weights_->config(); }
  const WeightsLayout& layout() const { return layout_; }
  // Made when first asked for (the device is current), shared while somebody holds it.
  std::shared_ptr<const WeightsCopy> copy(DType type, KernelLibrary& kernels, CUstream stream);
  std::int64_t bytes() const;
  void trim();  // gives back the narrow copies that nobody holds

 private:
  std::shared_ptr<const WeightsCopy> upload(CUstream stream) const;

  const std::shared_ptr<const Weights> weights_;
  const WeightsLayout layout_;
  mutable std::mutex mutex_;
  std::map<DType, std::shared_ptr<const WeightsCopy>> copies_;
};

}  // namespace gnomon::cuda
