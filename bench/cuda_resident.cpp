// Times of the resident kernel alone, in every form that runs on a shape of the suite. Whether they are right is the
// tests' business (gnomon_test_cuda --gtest_filter=Resident*). usage: gnomon_cuda_resident [SHAPE...] [WORD]; without
// a shape: 1 to 9; with a word: forms whose names begin with it
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <span>
#include <thread>

#include "core/weights.hpp"
#include "cuda/kernel_sources.hpp"
#include "cuda/resident_portable.hpp"
#include "cuda/resident_split.hpp"
#include "device_timing.hpp"

namespace gnomon::cuda {
namespace {

constexpr std::int64_t kLayers = 3, kHiddenFactor = 4;  // the suite's

void time_shape(KernelLibrary& library, CUstream stream, const Shape& s, const std::string& word) {
  const ResidentSpec spec{
      .config = {.layers = kLayers, .d_model = s.d, .n_heads = s.heads, .d_ff = kHiddenFactor * s.d},
      .batch = s.batch,
      .seq = s.seq};
  const DeviceProperties& device = library.device().properties();
  auto forms = resident_forms(spec, device);
  for (const ResidentForm& form : split_forms(spec, device)) {
    if (std::ranges::find(forms, form) == forms.end()) forms.push_back(form);
  }
  DeviceProperties others[] = {device, device, device};  // with the shared memory that they have
  others[1].max_shared_bytes = 163 << 10, others[2].max_shared_bytes = 99 << 10;
  for (const DeviceProperties& other : others) {
    for (const ResidentForm& form : portable_forms(spec, other)) {
      if (std::ranges::find(forms, form) == forms.end()) forms.push_back(form);
    }
  }
  std::erase_if(forms, [&](const ResidentForm& form) { return !form.to_string().starts_with(word); });
  if (forms.empty())
    return fmt::print("resident #{:<2} {}\n", s.id,
                      refuses_resident(spec, {}, device).value_or("no form begins with " + word));
  std::vector<std::thread> compilers;
  for (const ResidentForm& form : forms) {
    compilers.emplace_back(
        [&, form] { library.compiler().get(resident_source(spec, form), library.device().architecture()); });
  }
  for (std::thread& t : compilers) t.join();

  DeviceWeights weights(std::make_shared<const Weights>(Weights::random(spec.config, 1)));
  const ResidentWeights packed(library, spec.config, weights.layout(), weights.copy(DType::f32, library, stream),
                               stream);
  const std::int64_t bytes = std::max<std::int64_t>(16 << 20, 4 * s.batch * s.seq * s.d);
  const Memory from(bytes, DType::f32), to(bytes, DType::f32);
  const auto time = [&](const std::string& name, const Launch<kernels::resident::Call>& launch) {
    fmt::print("resident #{:<2} {:<22} {:9.2f} us  {} blocks of {} threads, {} bytes of shared memory\n", s.id, name,
               microseconds(stream, launch), launch.shape.blocks, launch.shape.threads,
               launch.shape.dynamic_shared_bytes);
    std::fflush(stdout);
  };
  for (const ResidentForm& form : forms) {
    auto launch = resident(library, spec, form, packed);
    launch.params.input = from.at<float>();
    launch.params.output = to.at<float>();
    time(form.to_string(), launch);
    if (!form.portable) continue;
    for (const DeviceProperties& other : std::span(others).subspan(1)) {
      if (refuses_resident(spec, form, other)) continue;
      launch.shape = portable_shape(spec, form, other);
      launch.params.stages = portable_stages(spec, form, other);
      time(fmt::format("{}/{}K", form.to_string(), other.max_shared_bytes >> 10), launch);
    }
  }
}

void run(const std::set<int>& shapes, const std::string& word) {
  Device device(0);
  const Device::Current current(device);
  KernelLibrary library(device, std::make_shared<Compiler>());
  fmt::print("{}, driver {}, kernels {:016x}\n", device.properties().name, driver().version, kernel_sources_hash());
  CUstream stream = nullptr;
  check(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  for (const Shape& s : kSuite) {
    if (shapes.contains(s.id)) time_shape(library, stream, s, word);
  }
}

}  // namespace
}  // namespace gnomon::cuda

int main(int count, char** arguments) {
  std::set<int> shapes;
  std::string word;
  for (int i = 1; i < count; ++i) {
    if (const int shape = std::atoi(arguments[i])) {
      shapes.insert(shape);
    } else {
      word = arguments[i];
    }
  }
  if (shapes.empty()) shapes = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  try {
    gnomon::cuda::run(shapes, word);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
