#include "cuda/cublaslt.hpp"

#include <array>
#include <atomic>

#include "core/error.hpp"
#include "cuda/dynamic_library.hpp"

namespace gnomon::cuda {
namespace {

CublasLt load() {
  const std::array names = {std::string("libcublasLt.so.13"), std::string("libcublasLt.so.12")};
  const DynamicLibrary library = DynamicLibrary::open("cuBLASLt", names, cuda_library_folders());
  CublasLt api;
  library.bind(api.create, "cublasLtCreate");
  library.bind(api.destroy, "cublasLtDestroy");
  library.bind(api.version, "cublasLtGetVersion");
  library.bind(api.status_string, "cublasLtGetStatusName");
  library.bind(api.desc_create, "cublasLtMatmulDescCreate");
  library.bind(api.desc_destroy, "cublasLtMatmulDescDestroy");
  library.bind(api.desc_set, "cublasLtMatmulDescSetAttribute");
  library.bind(api.layout_create, "cublasLtMatrixLayoutCreate");
  library.bind(api.layout_destroy, "cublasLtMatrixLayoutDestroy");
  library.bind(api.layout_set, "cublasLtMatrixLayoutSetAttribute");
  library.bind(api.preference_create, "cublasLtMatmulPreferenceCreate");
  library.bind(api.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  library.bind(api.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  library.bind(api.heuristics, "cublasLtMatmulAlgoGetHeuristic");
  library.bind(api.matmul, "cublasLtMatmul");
  const std::size_t v = api.version();  // 130100: 13.1.0
  api.version_text = fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  return api;
}

std::atomic<const CublasLt*> instead = nullptr;

}  // namespace

void use_cublaslt(const CublasLt* other) { instead = other; }

const CublasLt& cublaslt() {
  if (const CublasLt* other = instead.load(std::memory_order_acquire)) return *other;
  static const CublasLt api = load();
  return api;
}

void check_lt(int status, const char* call) {
  if (status != lt::success) throw_environment("{} failed: {}", call, cublaslt().status_string(status));
}

}  // namespace gnomon::cuda
