// A call whose tensors lie on the host, with copies of them on the engine's device. On the CPU they are the same.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"
#include "plan/device_memory.hpp"

namespace gnomon::cli {

class DeviceCall {
 public:
  DeviceCall() = default;
  // The tensors are contiguous; their contents are copied now. An output that is the input stays so.
  DeviceCall(std::string_view device, const Call& on_host);

  const Call& call() const { return call_; }
  void fetch_output();  // into the host's output

 private:
  template <typename Void>
  Void* copy_of(Void* data, std::size_t bytes, bool contents);

  struct Free {
    std::shared_ptr<DeviceMemory> memory;
    void operator()(void* data) const { memory->free(data); }
  };
  std::shared_ptr<DeviceMemory> memory_;  // null: the host's tensors are used as they are
  std::vector<std::unique_ptr<void, Free>> copies_;
  Call host_, call_;
};

}  // namespace gnomon::cli
