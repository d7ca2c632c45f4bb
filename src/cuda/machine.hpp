// What all plans of an engine on one device share.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "cuda/arena.hpp"
#include "cuda/cudnn_session.hpp"
#include "cuda/device.hpp"
#include "cuda/device_weights.hpp"
#include "cuda/kernel.hpp"
#include "cuda/product.hpp"
#include "cuda/resident.hpp"

namespace gnomon::cuda {

// The device must be current when it is made, used and destroyed; Device::Current does that.
class Machine {
 public:
  Machine(std::shared_ptr<const Device> on, std::shared_ptr<const Weights> its_weights,
          std::shared_ptr<Compiler> compiler)
      : shared_device(std::move(on)),
        device(*shared_device),
        kernels(device, std::move(compiler)),
        weights(std::move(its_weights)) {}

  const std::shared_ptr<const Device> shared_device;
  const Device& device;
  KernelLibrary kernels;
  BlasHandle blas;
  DeviceWeights weights;
  Arena arena;
  // Made when first asked for, shared while a plan holds them.
  std::shared_ptr<const ResidentWeights> resident_weights();
  DnnSession& cudnn_session();  // made when first asked for; environment error where there is no cuDNN
  Stream ours;                  // for uploads and checks
  // What the kernels of a captured call read and write beside its scratch: its graph may be launched when the plan is
  // long gone. Under the arena's lock.
  void keep_for_captures(std::shared_ptr<const void> what);
  Stream captures;  // under the arena's lock: what another thread puts on a captured stream becomes part of the graph

 private:
  std::mutex mutex_;
  std::weak_ptr<const ResidentWeights> resident_weights_;
  std::unique_ptr<DnnSession> cudnn_session_;
  std::vector<std::shared_ptr<const void>> captured_;  // last: dies before what it refers to
};

}  // namespace gnomon::cuda
