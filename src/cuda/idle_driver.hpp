// The host's part of a planned call, alone: while an IdleDriver lives, what such a call asks of NVIDIA's driver returns
// at once, and the device has nothing to do. Everything else goes to the driver as before. For the whole process, one
// at a time, and only while no other thread is inside this backend: benches.
#pragma once

#include "cuda/device.hpp"
#include "cuda/driver.hpp"

namespace gnomon::cuda {

class IdleDriver {
 public:
  explicit IdleDriver(const Device& device);
  ~IdleDriver();
  IdleDriver(const IdleDriver&) = delete;
  IdleDriver& operator=(const IdleDriver&) = delete;

 private:
  Driver idle_;
  const Driver* before_ = nullptr;
};

}  // namespace gnomon::cuda
