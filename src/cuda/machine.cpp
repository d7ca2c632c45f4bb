#include "cuda/machine.hpp"

namespace gnomon::cuda {

std::shared_ptr<const ResidentWeights> Machine::resident_weights() {
  const std::lock_guard lock(mutex_);
  if (auto known = resident_weights_.lock()) return known;
  const auto made = std::make_shared<const ResidentWeights>(kernels, weights.config(), weights.layout(),
                                                            weights.copy(DType::f32, kernels, ours), ours);
  resident_weights_ = made;
  return made;
}

}  // namespace gnomon::cuda
