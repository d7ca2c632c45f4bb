#include "cli/device_call.hpp"

#include "engine/device_plugin.hpp"

namespace gnomon::cli {
namespace {

template <typename View>
std::size_t bytes_of(const View& view) {
  return static_cast<std::size_t>(view.elements()) * size_of(view.dtype);
}

}  // namespace

DeviceCall::DeviceCall(std::string_view device, const Call& on_host)
    : memory_(make_device_memory(device)), host_(on_host), call_(on_host) {
  if (!memory_) return;
  const bool inplace = on_host.output.data == on_host.input.data;
  void* const input = copy_of(const_cast<void*>(on_host.input.data), bytes_of(on_host.input), true);
  call_.input.data = input;
  call_.output.data = inplace ? input : copy_of(on_host.output.data, bytes_of(on_host.output), false);
  if (on_host.mask) {
    const auto bytes = static_cast<std::size_t>(on_host.mask->shape[0] * on_host.mask->shape[1]);
    call_.mask->data = copy_of(const_cast<std::uint8_t*>(on_host.mask->data), bytes, true);
  }
}

template <typename Void>
Void* DeviceCall::copy_of(Void* data, std::size_t bytes, bool contents) {
  void* const copy = copies_.emplace_back(memory_->allocate(bytes), Free{memory_}).get();
  if (contents) memory_->to_device(copy, data, bytes);
  return static_cast<Void*>(copy);
}

void DeviceCall::fetch_output() {
  if (memory_) memory_->to_host(host_.output.data, call_.output.data, bytes_of(host_.output));
}

}  // namespace gnomon::cli
