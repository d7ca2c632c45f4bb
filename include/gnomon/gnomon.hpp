// Gnomon for C++20: header-only, over the C interface of gnomon.h and nothing else.
//
//   auto weights = gnomon::Weights::load("model.safetensors");
//   gnomon::Engine engine(weights, gnomon::Options().set("effort", "measure"));
//   engine.forward(gnomon::tensor(x.data(), {B, S, d}), gnomon::tensor(y.data(), {B, S, d}));
//
// Everything lives in the inline namespace v0: the symbols of the library's inside can never be mistaken for these.
#pragma once

#if __cplusplus < 202002L
#error "gnomon/gnomon.hpp is C++20: compile with -std=c++20 or later; for older C++ there is gnomon/gnomon.h"
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gnomon/gnomon.h"

namespace gnomon {
inline namespace v0 {

enum class ErrorKind {
  caller = GNOMON_CALLER_ERROR,
  environment = GNOMON_ENVIRONMENT_ERROR,
  internal = GNOMON_INTERNAL_ERROR,
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

enum class DType { f32 = GNOMON_F32, f16 = GNOMON_F16, bf16 = GNOMON_BF16, f64 = GNOMON_F64 };

// A [B, S, d_model] tensor in the caller's memory; strides in elements.
template <typename Void>
struct BasicTensorRef {
  Void* data = nullptr;
  DType dtype = DType::f32;
  std::array<std::int64_t, 3> shape{};
  std::array<std::int64_t, 3> strides{};

  BasicTensorRef() = default;
  BasicTensorRef(Void* address, DType type, std::array<std::int64_t, 3> sizes)
      : BasicTensorRef(address, type, sizes, {sizes[1] * sizes[2], sizes[2], 1}) {}
  BasicTensorRef(Void* address, DType type, std::array<std::int64_t, 3> sizes, std::array<std::int64_t, 3> steps)
      : data(address), dtype(type), shape(sizes), strides(steps) {}
  operator BasicTensorRef<const void>() const requires(!std::is_const_v<Void>) { return {data, dtype, shape, strides}; }
};
using TensorRef = BasicTensorRef<void>;
using ConstTensorRef = BasicTensorRef<const void>;

inline TensorRef tensor(float* data, std::array<std::int64_t, 3> shape) { return {data, DType::f32, shape}; }
inline ConstTensorRef tensor(const float* data, std::array<std::int64_t, 3> shape) { return {data, DType::f32, shape}; }

// A [B, S] padding mask of bytes, nonzero = valid token; strides in bytes.
struct MaskRef {
  const std::uint8_t* data = nullptr;
  std::array<std::int64_t, 2> shape{};
  std::array<std::int64_t, 2> strides{};

  MaskRef(const std::uint8_t* bytes, std::array<std::int64_t, 2> sizes) : MaskRef(bytes, sizes, {sizes[1], 1}) {}
  MaskRef(const std::uint8_t* bytes, std::array<std::int64_t, 2> sizes, std::array<std::int64_t, 2> steps)
      : data(bytes), shape(sizes), strides(steps) {}
};

// A contiguous row-major weight by its state_dict name.
struct NamedTensor {
  std::string name;
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
};

namespace detail {

inline void check(gnomon_status status) {
  if (status != GNOMON_OK) throw Error(static_cast<ErrorKind>(status), gnomon_last_error());
}

inline std::string take(char* text) {
  const std::unique_ptr<char, decltype(&gnomon_free)> owner(text, &gnomon_free);
  return owner.get();
}

template <typename Handle, void (*destroy)(Handle*)>
struct Destroy {
  void operator()(Handle* handle) const noexcept { destroy(handle); }
};
template <typename Handle, void (*destroy)(Handle*)>
using Owner = std::unique_ptr<Handle, Destroy<Handle, destroy>>;

// The C struct serves inputs and outputs alike; an input is only read.
template <typename Void>
gnomon_tensor to_c(const BasicTensorRef<Void>& tensor) {
  return {const_cast<void*>(static_cast<const void*>(tensor.data)),
          static_cast<gnomon_dtype>(tensor.dtype),
          {tensor.shape[0], tensor.shape[1], tensor.shape[2]},
          {tensor.strides[0], tensor.strides[1], tensor.strides[2]}};
}

inline gnomon_mask to_c(const MaskRef& mask) {
  return {mask.data, {mask.shape[0], mask.shape[1]}, {mask.strides[0], mask.strides[1]}};
}

}  // namespace detail

inline std::string_view version() { return gnomon_version(); }

class Weights {
 public:
  // Without a config the file, or a config.json beside it, must tell the structure.
  static Weights load(const std::string& path, const std::optional<std::string>& config = std::nullopt) {
    gnomon_weights* handle = nullptr;
    detail::check(gnomon_weights_from_safetensors(path.c_str(), config ? config->c_str() : nullptr, &handle));
    return Weights(handle);
  }

  static Weights random(const std::string& config, std::uint64_t seed) {
    gnomon_weights* handle = nullptr;
    detail::check(gnomon_weights_random(config.c_str(), seed, &handle));
    return Weights(handle);
  }

  // fp32 tensors are used where they lie: they must outlive the weights and every engine made from them.
  static Weights from_tensors(const std::string& config, std::span<const NamedTensor> tensors) {
    std::vector<gnomon_named_tensor> named;
    named.reserve(tensors.size());
    for (const NamedTensor& tensor : tensors) {
      named.push_back({tensor.name.c_str(), tensor.data, static_cast<gnomon_dtype>(tensor.dtype),
                       static_cast<std::int32_t>(tensor.shape.size()), tensor.shape.data()});
    }
    gnomon_weights* handle = nullptr;
    detail::check(gnomon_weights_from_tensors(config.c_str(), named.data(), named.size(), &handle));
    return Weights(handle);
  }

  void save(const std::string& path) const { detail::check(gnomon_weights_save(get(), path.c_str())); }

  std::string config() const {
    char* text = nullptr;
    detail::check(gnomon_weights_config(get(), &text));
    return detail::take(text);
  }

  const gnomon_weights* get() const { return handle_.get(); }

 private:
  explicit Weights(gnomon_weights* handle) : handle_(handle) {}
  detail::Owner<gnomon_weights, gnomon_weights_destroy> handle_;
};

// The options by name: see gnomon_options_set.
class Options {
 public:
  Options() {
    gnomon_options* handle = nullptr;
    detail::check(gnomon_options_create(&handle));
    handle_.reset(handle);
  }

  Options& set(const std::string& name, const std::string& value) & {
    detail::check(gnomon_options_set(handle_.get(), name.c_str(), value.c_str()));
    return *this;
  }
  Options&& set(const std::string& name, const std::string& value) && { return std::move(set(name, value)); }

  const gnomon_options* get() const { return handle_.get(); }

 private:
  detail::Owner<gnomon_options, gnomon_options_destroy> handle_;
};

// Weights on a device, and a plan for each problem met. May be shared between threads.
class Engine {
 public:
  explicit Engine(const Weights& weights, const Options& options = Options()) {
    gnomon_engine* handle = nullptr;
    detail::check(gnomon_engine_create(weights.get(), options.get(), &handle));
    handle_.reset(handle);
  }

  // output = stack(input); `output` may be `input`. Plans on the first call with a problem.
  void forward(const ConstTensorRef& input, const TensorRef& output, const std::optional<MaskRef>& mask = std::nullopt,
               void* stream = nullptr) {
    on_call(gnomon_forward, input, output, mask, stream);
  }

  // Plans for this call without writing its output.
  void plan(const ConstTensorRef& input, const TensorRef& output, const std::optional<MaskRef>& mask = std::nullopt,
            void* stream = nullptr) {
    on_call(gnomon_plan, input, output, mask, stream);
  }

  // Cuts short the planning that a call of another thread is waiting for; false when there is none. Safe in a signal
  // handler.
  bool cancel() noexcept { return gnomon_cancel(get()) != 0; }

  void refresh(const Weights& weights) { detail::check(gnomon_engine_refresh(get(), weights.get())); }

  // JSON: the record of a problem ("b64 s100"), "null" when it was never planned; without one, an array of all.
  std::string explain(const std::optional<std::string>& problem = std::nullopt) const {
    return text([&](char** out) { return gnomon_explain(get(), pointer(problem), out); });
  }
  std::string stats() const {
    return text([&](char** out) { return gnomon_stats(get(), out); });
  }

  std::string export_plans() const {
    return text([&](char** out) { return gnomon_plans_export(get(), out); });
  }
  std::size_t import_plans(const std::string& json, bool force = false) {
    std::size_t count = 0;
    detail::check(gnomon_plans_import(get(), json.c_str(), force ? 1 : 0, &count));
    return count;
  }
  std::size_t forget_plans(const std::optional<std::string>& problem = std::nullopt) {
    std::size_t count = 0;
    detail::check(gnomon_plans_forget(get(), pointer(problem), &count));
    return count;
  }

  gnomon_engine* get() const { return handle_.get(); }

 private:
  using Function = gnomon_status (*)(gnomon_engine*, const gnomon_tensor*, const gnomon_mask*, const gnomon_tensor*,
                                     void*);

  void on_call(Function function, const ConstTensorRef& input, const TensorRef& output,
               const std::optional<MaskRef>& mask, void* stream) {
    const gnomon_tensor in = detail::to_c(input);
    const gnomon_tensor out = detail::to_c(output);
    const gnomon_mask bytes = mask ? detail::to_c(*mask) : gnomon_mask{};
    detail::check(function(get(), &in, mask ? &bytes : nullptr, &out, stream));
  }

  static const char* pointer(const std::optional<std::string>& text) { return text ? text->c_str() : nullptr; }

  template <typename Write>
  static std::string text(const Write& write) {
    char* out = nullptr;
    detail::check(write(&out));
    return detail::take(out);
  }

  detail::Owner<gnomon_engine, gnomon_engine_destroy> handle_;
};

}  // namespace v0
}  // namespace gnomon
