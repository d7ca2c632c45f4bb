#include "cuda/cudnn.hpp"

#include <array>
#include <atomic>
#include <optional>

#include "core/error.hpp"
#include "cuda/dynamic_library.hpp"

namespace gnomon::cuda {
namespace {

// NVIDIA's own frontend refuses attention on 9.10.0 and 9.10.1 for their flaws, and more shapes of it on those before.
constexpr std::size_t kOldest = 91002;

std::string text_of(std::size_t version) {  // 91900: 9.19.0
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

struct Found {
  std::optional<Cudnn> api;
  std::string missing;
};

const Found& found() {
  static const Found it = [] {
    Found result;
    try {
      const std::array names = {std::string("libcudnn.so.9")};
      result.api = load_cudnn(names, cuda_library_folders());
    } catch (const Error& error) {
      result.missing = error.what();
    }
    return result;
  }();
  return it;
}

std::atomic<const Cudnn*> instead = nullptr;

}  // namespace

Cudnn load_cudnn(std::span<const std::string> names, std::span<const std::filesystem::path> folders) {
  const DynamicLibrary library = DynamicLibrary::open("cuDNN", names, folders);
  Cudnn api;
  library.bind(api.version, "cudnnGetVersion");
  const std::size_t version = api.version();
  if (version < kOldest)
    throw_environment("cuDNN {} ({}) is too old for its attention: {} or newer is needed", text_of(version),
                      library.path().string(), text_of(kOldest));
  library.bind(api.status_string, "cudnnGetErrorString");
  library.bind(api.last_error, "cudnnGetLastErrorString");
  library.bind(api.create, "cudnnCreate");
  library.bind(api.destroy, "cudnnDestroy");
  library.bind(api.set_stream, "cudnnSetStream");
  library.bind(api.create_descriptor, "cudnnBackendCreateDescriptor");
  library.bind(api.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  library.bind(api.finalize, "cudnnBackendFinalize");
  library.bind(api.set, "cudnnBackendSetAttribute");
  library.bind(api.get, "cudnnBackendGetAttribute");
  library.bind(api.execute, "cudnnBackendExecute");
  api.version_text = text_of(version);
  return api;
}

void use_cudnn(const Cudnn* other) { instead = other; }

const std::string& cudnn_missing() {
  static const std::string nothing;
  return instead.load(std::memory_order_acquire) ? nothing : found().missing;
}

const Cudnn& cudnn() {
  if (const Cudnn* other = instead.load(std::memory_order_acquire)) return *other;
  if (!found().api) throw_environment("{}", found().missing);
  return *found().api;
}

void check_dnn(int status, const char* call) {
  if (status == dnn::success) return;
  std::array<char, 512> words{};
  cudnn().last_error(words.data(), words.size() - 1);
  throw_environment("{} failed: {}{}{}", call, cudnn().status_string(status), words[0] ? ": " : "", words.data());
}

}  // namespace gnomon::cuda
