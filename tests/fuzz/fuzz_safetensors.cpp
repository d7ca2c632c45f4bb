// Any bytes are a safetensors file whose every tensor lies inside them, or a refusal.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "core/error.hpp"
#include "core/names.hpp"
#include "core/safetensors.hpp"

namespace {

// Reads the first and last byte of each tensor: outside the heap block, the address sanitizer ends the run.
void touch(const gnomon::Safetensors& file) {
  std::size_t total = 0;
  for (const gnomon::StoredTensor& tensor : file.tensors()) {
    total += tensor.bytes.size();
    if (tensor.bytes.empty()) continue;
    volatile std::byte first = tensor.bytes.front(), last = tensor.bytes.back();
    static_cast<void>(first), static_cast<void>(last);
  }
  std::vector<std::string> names;
  for (const gnomon::StoredTensor& tensor : file.tensors()) names.push_back(tensor.name);
  if (total > 0) gnomon::map_names(names);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto exact = std::make_unique<std::byte[]>(size);  // no byte of slack behind the file
  if (size > 0) std::memcpy(exact.get(), data, size);
  try {
    touch(gnomon::Safetensors::parse({exact.get(), size}, "fuzz"));
  } catch (const gnomon::Error& error) {
    if (error.kind() == gnomon::ErrorKind::internal) std::abort();
  }
  return 0;
}
