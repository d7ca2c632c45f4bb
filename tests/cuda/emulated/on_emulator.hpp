// Kernel tests on the emulator: arrays between guard zones, element types by name, and a launch in few words.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "cuda/arrays.hpp"
#include "cuda/emulator/emulate.hpp"
#include "emulated/half.cuh"

namespace gnomon::test {

// As DeviceBytes: aligned like memory of a device, all of it NaN at first.
class HostBytes {
 public:
  explicit HostBytes(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)),
        base_(static_cast<unsigned char*>(::operator new(bytes_ + 2 * kGuard, std::align_val_t(kGuard)))) {
    std::memset(base_.get(), 0xff, bytes_ + 2 * kGuard);
  }
  template <typename T = void>
  T* data() const {
    return reinterpret_cast<T*>(base_.get() + kGuard);
  }
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_); }
  void upload(const void* from) {
    if (bytes_ > 0) std::memcpy(data(), from, bytes_);
  }
  std::vector<unsigned char> download() const { return {data<unsigned char>(), data<unsigned char>() + bytes_}; }
  bool guards_intact() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (base_[i] != 0xff || base_[bytes_ + 2 * kGuard - 1 - i] != 0xff) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  struct Free {
    void operator()(unsigned char* p) const { ::operator delete(p, std::align_val_t(kGuard)); }
  };
  std::size_t bytes_;
  std::unique_ptr<unsigned char[], Free> base_;
};

using HostArray = ArrayOf<HostBytes>;
using HostTensor = TensorOf<HostBytes>;

template <typename T>
constexpr DType dtype_of = kernels::same_type<T, float>          ? DType::f32
                           : kernels::same_type<T, double>       ? DType::f64
                           : kernels::same_type<T, kernels::f16> ? DType::f16
                                                                 : DType::bf16;
template <typename T>
std::optional<DType> optional_dtype_of() {
  if constexpr (kernels::same_type<T, kernels::none>) return std::nullopt;
  return dtype_of<T>;
}

}  // namespace gnomon::test
