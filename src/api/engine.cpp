// gnomon_options_*, gnomon_engine_*, gnomon_forward and what an engine tells: see include/gnomon/gnomon.h.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "api/handles.hpp"

using namespace gnomon;
using namespace gnomon::capi;

namespace {

template <std::size_t N>
std::array<std::int64_t, N> array_of(const std::int64_t (&values)[N]) {
  std::array<std::int64_t, N> result;
  std::copy_n(values, N, result.begin());
  return result;
}

template <typename View>
View tensor_view(const gnomon_tensor& tensor, const char* argument) {
  View view;
  view.dtype = dtype_of(tensor.dtype, argument);
  view.shape = array_of(tensor.shape);
  view.strides = array_of(tensor.strides);
  for (const std::int64_t size : view.shape) {
    if (size < 0) throw_caller("`{}` has shape [{}]; sizes cannot be negative", argument, fmt::join(view.shape, ", "));
  }
  const bool empty = std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end();
  if (!empty && tensor.data == nullptr) {
    throw_caller("`{}.data` is NULL for shape [{}]", argument, fmt::join(view.shape, ", "));
  }
  view.data = tensor.data;
  return view;
}

MaskView mask_view(const gnomon_mask& mask) {
  const MaskView view{mask.data, array_of(mask.shape), array_of(mask.strides)};
  if (mask.data == nullptr && view.shape[0] > 0 && view.shape[1] > 0) {
    throw_caller("`mask.data` is NULL for shape [{}]; pass a NULL mask when every token is valid",
                 fmt::join(view.shape, ", "));
  }
  return view;
}

Call call_of(const gnomon_tensor* input, const gnomon_mask* mask, const gnomon_tensor* output, void* stream) {
  Call call;
  call.input = tensor_view<ConstTensorView>(*require(input, "input"), "input");
  if (mask != nullptr) call.mask = mask_view(*mask);
  call.output = tensor_view<TensorView>(*require(output, "output"), "output");
  call.stream = stream;
  return call;
}

}  // namespace

gnomon_status gnomon_options_create(gnomon_options** out) {
  return guarded([&] {
    require(out, "out");  // before there is anything to leak: the right of an assignment is evaluated first
    *out = new gnomon_options{};
  });
}

gnomon_status gnomon_options_set(gnomon_options* options, const char* name, const char* value) {
  return guarded([&] { require(options, "options")->value.set(require(name, "name"), require(value, "value")); });
}

void gnomon_options_destroy(gnomon_options* options) { delete options; }

gnomon_status gnomon_engine_create(const gnomon_weights* weights, const gnomon_options* options, gnomon_engine** out) {
  return guarded([&] {
    *require(out, "out") = nullptr;
    require(weights, "weights");
    *out = new gnomon_engine{Engine(weights->value, options == nullptr ? EngineOptions{} : options->value)};
  });
}

void gnomon_engine_destroy(gnomon_engine* engine) { delete engine; }

gnomon_status gnomon_forward(gnomon_engine* engine, const gnomon_tensor* input, const gnomon_mask* mask,
                             const gnomon_tensor* output, void* stream) {
  return guarded([&] { require(engine, "engine")->value.forward(call_of(input, mask, output, stream)); });
}

gnomon_status gnomon_plan(gnomon_engine* engine, const gnomon_tensor* input, const gnomon_mask* mask,
                          const gnomon_tensor* output, void* stream) {
  return guarded([&] { require(engine, "engine")->value.plan(call_of(input, mask, output, stream)); });
}

int gnomon_cancel(gnomon_engine* engine) { return engine != nullptr && engine->value.cancel() ? 1 : 0; }

gnomon_status gnomon_engine_refresh(gnomon_engine* engine, const gnomon_weights* weights) {
  return guarded([&] { require(engine, "engine")->value.refresh(require(weights, "weights")->value); });
}

gnomon_status gnomon_stats(const gnomon_engine* engine, char** out) {
  return guarded([&] {
    *require(out, "out") = nullptr;
    const EngineStats stats = require(engine, "engine")->value.stats();
    const nlohmann::ordered_json json = {
        {"forwards", stats.forwards},
        {"problems_planned", stats.problems_planned},
        {"timing_runs", stats.timing_runs},
        {"check_runs", stats.check_runs},
        {"store_hits", stats.store_hits},
        {"plans_adopted", stats.plans_adopted},
        {"plans_evicted", stats.plans_evicted},
        {"range_fallbacks", stats.range_fallbacks},
        {"background_planned", stats.background_planned},
        {"background_pending", stats.background_pending},
        {"background_failed", stats.background_failed},
        {"scratch_bytes", stats.scratch_bytes},
        {"packed_bytes", stats.packed_bytes},
    };
    *out = copy_text(json.dump());
  });
}
