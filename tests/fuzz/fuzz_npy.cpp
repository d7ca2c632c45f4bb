// Any bytes are a .npy file whose elements lie inside them, or a refusal.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/error.hpp"
#include "core/npy.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto exact = std::make_unique<std::byte[]>(size);  // no byte of slack behind the file
  if (size > 0) std::memcpy(exact.get(), data, size);
  try {
    const gnomon::NpyArray array = gnomon::parse_npy({exact.get(), size}, "fuzz");
    if (!array.bytes.empty() && array.bytes.data() + array.bytes.size() != exact.get() + size) std::abort();
  } catch (const gnomon::Error& error) {
    if (error.kind() == gnomon::ErrorKind::internal) std::abort();
  }
  return 0;
}
