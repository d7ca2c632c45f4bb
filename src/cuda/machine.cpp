#include "cuda/machine.hpp"

#include <algorithm>

namespace gnomon::cuda {

std::shared_ptr<const ResidentWeights> Machine::resident_weights() {
  const std::lock_guard lock(mutex_);
  if (auto known = resident_weights_.lock()) return known;
  const auto made = std::make_shared<const ResidentWeights>(kernels, weights.config(), weights.layout(),
                                                            weights.copy(DType::f32, kernels, ours), ours);
  resident_weights_ = made;
  return made;
}

void Machine::keep_for_captures(std::shared_ptr<const void> what) {
  if (what && std::ranges::find(captured_, what) == captured_.end()) captured_.push_back(std::move(what));
}

DnnSession& Machine::cudnn_session() {
  const std::lock_guard lock(mutex_);
  if (!cudnn_session_)
    cudnn_session_ = std::make_unique<DnnSession>(arena, device.properties(), kernels.compiler().cache());
  return *cudnn_session_;
}

}  // namespace gnomon::cuda
